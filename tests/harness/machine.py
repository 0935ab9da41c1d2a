"""A small Debian tree booted with systemd as process 1, in which the appliance is installed as an administrator would.

The tree is made once with debootstrap and kept as an archive, in /var/cache/vitriol-test when that can be written, else in
.cache of the clone. It is booted by systemd-nspawn with a private network and an own cgroup hierarchy, so hosts with
cgroup v1 will do.
"""
import glob
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile

from .appliance import BUILD, TOP, wait_for

PACKAGES = ['systemd', 'systemd-sysv', 'dbus', 'curl', 'procps', 'libnng1', 'libmsgpackc2', 'libsqlite3-0', 'libmicrohttpd12',
            'libjansson4', 'libpcre2-8-0', 'libutf8proc2', 'libxxhash0', 'libssl3', 'libseccomp2']


def why_not():
    """Why a machine cannot be booted here, or an empty string."""
    if os.geteuid() != 0:
        return 'booting a machine needs root'
    for tool in ('debootstrap', 'systemd-nspawn', 'nsenter', 'tar'):
        if not shutil.which(tool):
            return '%s is not installed' % tool
    return ''


def mirror():
    """The archive that this host itself uses."""
    for path in ['/etc/apt/sources.list'] + glob.glob('/etc/apt/sources.list.d/*'):
        try:
            with open(path) as f:
                lines = f.read().splitlines()
        except OSError:
            continue
        for line in lines:
            for word in line.split('#')[0].split():
                if word.startswith(('http://', 'https://')) and word.rstrip('/').endswith('/debian'):
                    return word
    return 'http://deb.debian.org/debian'


def base_archive():
    key = hashlib.sha256(' '.join(PACKAGES).encode()).hexdigest()[:12]
    for folder in ('/var/cache/vitriol-test', os.path.join(TOP, '.cache')):
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            break
    path = os.path.join(folder, 'bookworm-%s.tar' % key)
    if not os.path.exists(path):
        with tempfile.TemporaryDirectory(prefix='vtboot', dir='/tmp') as tmp:
            log = os.path.join(folder, 'debootstrap.log')
            with open(log, 'w') as f:
                subprocess.run(['debootstrap', '--variant=minbase', '--include=' + ','.join(PACKAGES), 'bookworm',
                                tmp + '/tree', mirror()], check=True, stdin=subprocess.DEVNULL, stdout=f, stderr=f)
            shutil.rmtree(tmp + '/tree/var/cache/apt', ignore_errors=True)
            subprocess.run(['tar', '-C', tmp + '/tree', '-cf', path + '.new', '.'], check=True)
            os.rename(path + '.new', path)
    return path


class Machine:
    def __init__(self):
        self.root = tempfile.mkdtemp(prefix='vtboot', dir='/tmp')
        self.tree = os.path.join(self.root, 'tree')
        self.proc = self.leader = None

    def __enter__(self):
        os.mkdir(self.tree)
        subprocess.run(['tar', '-C', self.tree, '-xpf', base_archive()], check=True)
        return self

    def install(self):
        subprocess.run(['meson', 'install', '-C', BUILD, '--no-rebuild', '--quiet'], check=True,
                       env=dict(os.environ, DESTDIR=self.tree), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def boot(self):
        self.console = os.path.join(self.root, 'console')
        with open(self.console, 'w') as f:
            self.proc = subprocess.Popen(
                ['systemd-nspawn', '-q', '-D', self.tree, '--register=no', '--keep-unit', '--private-network',
                 '--console=pipe', '--boot'],
                env=dict(os.environ, SYSTEMD_NSPAWN_UNIFIED_HIERARCHY='1'), stdin=subprocess.DEVNULL, stdout=f, stderr=f,
                start_new_session=True)
        self.leader = wait_for('process 1 of the machine', self._find_leader, 30)
        wait_for('the machine has booted', self._booted, 60, 0.2)

    def _find_leader(self):
        assert self.proc.poll() is None, open(self.console).read()
        for p in glob.glob('/proc/[0-9]*/status'):
            try:
                with open(p) as f:
                    st = dict(ln.rstrip('\n').split(':\t', 1) for ln in f if ':\t' in ln)
            except OSError:
                continue
            if st.get('PPid') == str(self.proc.pid) and st.get('NSpid', '').split()[1:] == ['1']:
                return int(st['Pid'])
        return None

    def _booted(self):
        assert self.proc.poll() is None, open(self.console).read()
        out = self.run('systemctl', 'is-system-running', check=False).stdout.strip()
        return out in ('running', 'degraded')

    def run(self, *argv, check=True, timeout=120):
        """Runs a command inside and returns it with its output."""
        p = subprocess.run(self.inside(argv), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
        assert not check or p.returncode == 0, (argv, p.returncode, p.stdout[-2000:], p.stderr[-2000:])
        return p

    def inside(self, argv):
        return ['nsenter', '-t', str(self.leader), '-m', '-u', '-i', '-n', '-p', '-C', '-r', '-w'] + list(argv)

    def background(self, *argv, out):
        return subprocess.Popen(self.inside(argv), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL)

    def pids(self, name):
        """Process ids, as this host numbers them, of the machine's processes of that program."""
        out = []
        for p in glob.glob('/proc/[0-9]*'):
            try:
                exe, root = os.readlink(p + '/exe'), os.stat(p + '/root/')
            except OSError:
                continue
            here = os.stat('/proc/%d/root/' % self.leader)
            if os.path.basename(exe) == name and (root.st_dev, root.st_ino) == (here.st_dev, here.st_ino):
                out.append(int(os.path.basename(p)))
        return sorted(out)

    def journal(self, *args):
        return self.run('journalctl', '--no-pager', '-o', 'short-monotonic', *args, check=False).stdout

    def __exit__(self, *exc):
        if self.proc is not None and self.proc.poll() is None:
            if self.leader:
                os.kill(self.leader, signal.SIGRTMIN + 4)  # systemd: power off
            try:
                self.proc.wait(60)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
        shutil.rmtree(self.root, ignore_errors=True)
