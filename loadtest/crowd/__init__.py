"""The buyers of a load test, as locust runs them.

Nothing here is imported by the rest of Holdfast but what `records` has: locust replaces the sockets of its process by
gevent's, so it has a process of its own.
"""
