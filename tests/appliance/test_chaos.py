"""The judge of `vitriol test chaos`: a cut is forgiven for a death between request and cut, for nothing before and after."""
import collections
import subprocess
import threading
import time
import types

import pytest

import chaos
from harness.appliance import wait_for

LATE = 0.8  # how long the gateway is looked for before it is killed


@pytest.fixture
def run():
    r = chaos.Run.__new__(chaos.Run)
    r.lock, r.faults, r.ends = threading.Lock(), collections.Counter(), collections.Counter()
    r.bad, r.deaths, r.ended = [], [], False
    procs = [subprocess.Popen(['sleep', '600']) for _ in range(2)]
    vitriold, gateway = (p.pid for p in procs)

    def child(name):
        time.sleep(LATE)
        return gateway

    r.app = types.SimpleNamespace(pid=vitriold, child=child, kill=child, children=lambda: {'gateway': gateway})
    r.procs = dict(zip(('vitriold', 'gateway'), procs))
    yield r
    for p in procs:
        p.kill()
        p.wait()


def judged(run, t0):
    run.ends.clear()
    run.cut(t0, 'answer')
    return [k for k, n in run.ends.items() if n]


def over(run):
    wait_for('the death is over', lambda: run.deaths[-1].end)


def test_a_death_long_after_it_was_decided(run):
    began = time.monotonic()
    run.kill('gateway')
    assert judged(run, began + LATE * 0.9) == ['cut by a death of the gateway']
    over(run)
    assert judged(run, began) == ['cut by a death of the gateway']


def test_what_is_asked_for_after_a_death_may_not_be_cut(run):
    run.kill('gateway')
    over(run)
    assert judged(run, time.monotonic()) == ['SILENT']
    assert 'the last was that of gateway' in run.bad[0], run.bad


def test_without_a_death_nothing_may_be_cut(run):
    run.kill('engine0')  # the same look, and a signal that is no gateway's
    assert judged(run, time.monotonic() - 60) == ['SILENT']


def test_a_vitriold_takes_its_gateway_with_it(run):
    run.kill('vitriold')
    run.procs['vitriold'].wait()
    time.sleep(0.7)
    assert judged(run, time.monotonic()) == ['cut by a death of the gateway']  # it is still dying
    run.procs['gateway'].kill()
    over(run)
    assert judged(run, time.monotonic()) == ['SILENT']


def test_one_that_had_ended_is_no_death(run):
    run.procs['gateway'].kill()
    run.procs['gateway'].wait()
    run.kill('gateway')
    assert judged(run, time.monotonic() - 60) == ['SILENT']
