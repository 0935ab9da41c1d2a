"""A cgroup with a memory limit, as root on the machine's own hierarchy, whichever version its memory controller has."""
import os
import subprocess
import sys
import time
import uuid

V1, V2 = '/sys/fs/cgroup/memory', '/sys/fs/cgroup'

EAT = '''
import mmap, sys, time
step, rate = 4 << 20, float(sys.argv[2])
held = []
for _ in range(int(float(sys.argv[1]) * (1 << 20)) // step):
    m = mmap.mmap(-1, step)
    for at in range(0, step, 4096):
        m[at] = 1
    held.append(m)
    time.sleep(step / (rate * (1 << 20)))
time.sleep(600)
'''


def why_not():
    """Why no limited cgroup can be made here, or an empty string."""
    try:
        Box(64).remove()
        return ''
    except OSError as e:
        return 'no cgroup with a memory limit can be made here: %s' % e


class Box:
    def __init__(self, mib):
        self.v1 = os.path.exists(V1 + '/memory.limit_in_bytes')
        self.path = os.path.join(V1 if self.v1 else V2, 'vttest-' + uuid.uuid4().hex[:8])
        os.mkdir(self.path)
        try:
            self._put('memory.limit_in_bytes' if self.v1 else 'memory.max', mib << 20)
        except OSError:
            os.rmdir(self.path)
            raise

    def _put(self, name, value):
        with open(os.path.join(self.path, name), 'w') as f:
            f.write(str(value))

    def enter(self):
        """For preexec_fn."""
        self._put('cgroup.procs', os.getpid())

    def used(self):
        with open(os.path.join(self.path, 'memory.usage_in_bytes' if self.v1 else 'memory.current')) as f:
            return int(f.read())

    def eat(self, mib, rate=100):
        """A process in the box that takes so much at that pace (MiB a second) and keeps it."""
        return subprocess.Popen([sys.executable, '-c', EAT, str(mib), str(rate)], preexec_fn=self.enter,
                                stdin=subprocess.DEVNULL)

    def remove(self):
        for _ in range(100):
            try:
                os.rmdir(self.path)
                return
            except OSError:
                time.sleep(0.05)
        os.rmdir(self.path)
