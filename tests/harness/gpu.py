"""What the tests of real and of fake GPUs share."""
import collections
import glob
import os
import re

from .appliance import wait_for  # noqa: F401  (for the tests)

Load = collections.namedtuple('Load', 'process model device weights kept kv pages spoilt held')
PATTERN = re.compile(r'loaded: process (\d+) ms, model file and device (\d+) ms, rest of the device (\d+) ms, weights (\d+) ms \((kept|loaded)\), '
                     r'KV (\d+) ms \((\d+) pages kept, (\d+) spoilt\), (.*)')


def loads(app):
    """Every load that an engine of this appliance has told of; times in ms."""
    return [Load(int(p), int(m), int(d), int(w), how == 'kept', int(kv), int(pages), int(spoilt), 'holds it' in held)
            for p, m, d, w, how, kv, pages, spoilt, held in PATTERN.findall(app.log_text())]


def fault(folder, kind, at):
    """Settings for an engine program with faults: the first generation to come to step `at` has it."""
    if kind is None:
        return {}
    path = os.path.join(str(folder), 'fault')
    with open(path, 'w'):
        pass
    return {'engine.args': '%s-at=%d=%s' % (kind, at, path)}


def memory_of(pid):
    """Descriptors of shared memory that a process holds."""
    return [f for f in glob.glob('/proc/%d/fd/*' % pid) if 'memfd:vitriol' in os.readlink(f)]
