"""A plugin of pytest with the fixtures that pottery's published tests are given by a file which is not published: an empty
database at REDIS, for both kinds of clients."""

import os

import pytest
import pytest_asyncio
import redis as clients
import redis.asyncio as async_clients

URL = f"redis://{os.environ['REDIS']}/15"
LOCKS = "redlock:printer", "redlock:synchronized-func"


@pytest.fixture
def redis():
    with clients.from_url(URL, socket_timeout=1) as r:
        r.delete(*LOCKS)
        yield r


@pytest_asyncio.fixture
async def aioredis(redis):
    async with async_clients.from_url(URL, socket_timeout=1) as r:
        yield r
