"""Opens a connection every 20 ms for as long as it runs and asks each for /health: was any refused, was any left alone?"""
import threading
import time

from . import stream


class Knocker:
    def __init__(self, port, every=0.02, timeout=120):
        self.port, self.every, self.timeout = port, every, timeout
        self.results, self.threads, self.going = [], [], True
        self.lock = threading.Lock()

    def _one(self):
        t0 = time.monotonic()
        try:
            r = stream.get(self.port, '/health', timeout=self.timeout)
            r.read()
            what = 'answered'
        except ConnectionRefusedError:
            what = 'refused'
        except (stream.Cut, ConnectionResetError, BrokenPipeError):
            what = 'cut'
        except OSError as e:
            what = 'lost: %s' % e
        with self.lock:
            self.results.append((what, t0, time.monotonic() - t0))

    def _loop(self):
        while self.going:
            t = threading.Thread(target=self._one, daemon=True)
            t.start()
            self.threads.append(t)
            time.sleep(self.every)

    def __enter__(self):
        self.main = threading.Thread(target=self._loop, daemon=True)
        self.main.start()
        return self

    def __exit__(self, *exc):
        self.going = False
        self.main.join()
        for t in self.threads:
            t.join(self.timeout + 5)

    def count(self, what):
        return sum(r[0] == what for r in self.results)

    def slowest(self):
        return max((r[2] for r in self.results), default=0.0)
