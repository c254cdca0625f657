"""Runs docs/recipes/tasks.py, which is at shop/tasks.py, in a worker of Celery: a task that is sent often is done once, and a
worker that is late does not write over what a later one has written."""
import os
import sys
import threading
import time
import types

import django
import redis
from celery import Celery
from celery.contrib.testing.worker import start_worker
from django.conf import settings
from django.db import connection, models

LONG = 60
settings.configure(
    LOCKPROXY_URL="redis://" + os.environ["PROXY"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["DATABASE"], "OPTIONS": {"timeout": LONG}}},
)
django.setup()


class Report(models.Model):
    number = models.IntegerField(primary_key=True)
    text = models.TextField(default="")
    fence = models.BigIntegerField(default=0)

    class Meta:
        app_label = "shop"


class Writer:
    """Writes reports, each when it may."""

    def __init__(self):
        self.lock, self.began, self.may = threading.Lock(), 0, [threading.Event() for _ in range(4)]

    def __call__(self, number):
        with self.lock:
            self.began += 1
            began = self.began
        if not self.may[began].wait(LONG):
            raise TimeoutError("may not write")
        return f"report {number}, by writer {began}"


def until(condition, what):
    end = time.monotonic() + LONG
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(what)
        time.sleep(0.01)


sys.modules["shop.models"] = types.ModuleType("shop.models")
sys.modules["shop.models"].Report, sys.modules["shop.models"].write = Report, (write := Writer())
app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=True)
from shop.tasks import make_report  # noqa: E402

make_report.default_retry_delay = 0.05
with connection.schema_editor() as editor:
    editor.create_model(Report)
operator = redis.Redis.from_url(settings.LOCKPROXY_URL)

with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False, shutdown_timeout=LONG):
    Report(number=7).save()
    sent = [make_report.delay(7) for _ in range(6)]
    until(lambda: write.began == 1, "no task is run")
    until(lambda: any(r.state == "RETRY" for r in sent), "none is put off")
    write.may[1].set()
    for result in sent:
        result.get(timeout=LONG)
    assert write.began == 1, f"written {write.began} times"
    assert Report.objects.get(number=7).text == "report 7, by writer 1"

    Report(number=8).save()
    late = make_report.delay(8)
    until(lambda: write.began == 2, "no task is run")
    operator.execute_command("LOCKCTL", "FORCE", "report:8")
    other = make_report.delay(8)
    until(lambda: write.began == 3, "the lock is not free")
    write.may[3].set()
    other.get(timeout=LONG)
    write.may[2].set()
    late.get(timeout=LONG)  # it has lost its lock, is tried again, and finds it done
    assert write.began == 3, f"written {write.began - 1} times"
    assert Report.objects.get(number=8).text == "report 8, by writer 3"
print("ok")
