"""Tasks of Celery that do not run twice: of an application of Django's called shop."""
import functools

import redis
from celery import shared_task
from django.conf import settings
from redis.exceptions import RedisError
from shop.models import Report, write

from lockproxy import Locks

locks = Locks(redis.Redis.from_url(settings.LOCKPROXY_URL))


def holding(name, **options):
    """A decorator: a function that takes a lock for each call, and gets it in front of its arguments. In the name,
    {} are the arguments that are given by position, as all callers must."""

    def decorate(function):
        @functools.wraps(function)
        def locked(*args, **kwargs):
            with locks.lock(name.format(*args, **kwargs), **options) as lock:
                return function(lock, *args, **kwargs)

        return locked

    return decorate


@shared_task(autoretry_for=(RedisError,), default_retry_delay=10, max_retries=None, acks_late=True, reject_on_worker_lost=True)
@holding("report:{}", session=True)
def make_report(lock, number):
    if Report.objects.get(number=number).text:
        return  # it is done: Celery may deliver a task twice
    text = write(number)  # takes long
    Report.objects.filter(number=number, fence__lt=lock.fence).update(text=text, fence=lock.fence)
