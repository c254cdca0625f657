"""A plugin of pytest that deletes the key of the tests' locks before each test, as the tests' own FLUSHDB would
if it took adopted locks away."""

import pytest
import redis


def pytest_addoption(parser):
    parser.addoption("--release", help="the key to delete")


@pytest.fixture(autouse=True)
def released(request):
    with redis.from_url(request.config.getoption("--redis-url")) as r:
        r.delete(request.config.getoption("--release"))
