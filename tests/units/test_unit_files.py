"""The unit files: relations between their numbers, and what systemd itself says of them."""
import configparser
import os
import re
import shutil
import subprocess

import pytest

from harness.appliance import BUILD, TOP, program

UNITS = os.path.join(TOP, 'units')
RENDERED = os.path.join(BUILD, 'units')
FILES = {
    'vitriol.target': os.path.join(UNITS, 'vitriol.target'),
    'vitriol.socket': os.path.join(UNITS, 'vitriol.socket'),
    'vitriold.service': os.path.join(RENDERED, 'vitriold.service'),
    'vitriol-ready.service': os.path.join(RENDERED, 'vitriol-ready.service'),
}
USER = {
    'vitriol.target': os.path.join(UNITS, 'user', 'vitriol.target'),
    'vitriol.socket': os.path.join(UNITS, 'user', 'vitriol.socket'),
    'vitriold.service': os.path.join(RENDERED, 'user-vitriold.service'),
}
DRAIN_S, GATEWAY_S, FLUSH_S, KILL_GRACE_S, DUTY_S, ALARM_S = 90, 10, 30, 20, 10, 3


def load(path):
    p = configparser.RawConfigParser(strict=False, delimiters=('=',), comment_prefixes=('#',))
    p.optionxform = str
    p.read(path)
    return p


def seconds(text):
    m = re.fullmatch(r'(\d+)(s|min)?', text)
    return int(m.group(1)) * (60 if m.group(2) == 'min' else 1)


@pytest.mark.parametrize('files', [FILES, USER], ids=['system', 'user'])
def test_relations(files):
    service, sock = load(files['vitriold.service']), load(files['vitriol.socket'])
    s = service['Service']
    assert seconds(s['TimeoutStopSec']) > DRAIN_S + GATEWAY_S + FLUSH_S + KILL_GRACE_S
    assert seconds(s['WatchdogSec']) >= 3 * DUTY_S
    assert seconds(s['TimeoutAbortSec']) > ALARM_S
    k = sock['Socket']
    assert int(k['TriggerLimitBurst']) > seconds(k['TriggerLimitIntervalSec']) / seconds(s['RestartSec']) + 1
    assert k['Service'] == 'vitriold.service' and s['Sockets'] == 'vitriol.socket'
    assert k['FileDescriptorName'] == 'http'
    assert s['KillMode'] == 'control-group' and s['Restart'] == 'always'
    assert set(s['RestartPreventExitStatus'].split()) == {'64', '77', '78'}


def test_drain_default_is_the_one_of_the_relation():
    """The relation above counts with the default of engine.drain_s."""
    with open(os.path.join(TOP, 'common', 'config.def')) as f:
        assert 'CFG(ENGINE_DRAIN_S, "engine.drain_s", VT_T_INT, "%d"' % DRAIN_S in f.read()


@pytest.mark.parametrize('path', list(FILES.values()) + list(USER.values()))
def test_start_limit_is_in_unit(path):
    with open(path) as f:
        text = f.read()
    p = load(path)
    if 'Service' in p and 'Restart' in p['Service'] or 'Socket' in p:
        assert text.count('StartLimitIntervalSec') == 1
        assert p['Unit']['StartLimitIntervalSec'] == '0'
    assert 'Environment' not in text, 'units carry no tunables'
    assert '@' not in re.sub(r'modprobe@|@system-service|@pkey', '', text), 'a placeholder was not rendered'


@pytest.mark.parametrize('files,mode', [(FILES, '--system'), (USER, '--user')], ids=['system', 'user'])
def test_systemd_analyze_verify(files, mode, tmp_path):
    """Clean, once the programs exist where the units look for them."""
    for name in ('vitriold', 'vitriolctl', 'vitriol-shield'):
        os.symlink(program(name), tmp_path / name)
    for name, path in files.items():
        with open(path) as f:
            text = re.sub(r'(?m)^(Exec\w+=-?)\S*/(vitriol[\w-]*)', r'\1%s/\2' % tmp_path, f.read())
        (tmp_path / name).write_text(text)
    p = subprocess.run(['systemd-analyze', mode, 'verify', '--man=no'] + [str(tmp_path / n) for n in files],
                       capture_output=True, text=True, env=dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path)))
    noise = [ln for ln in (p.stdout + p.stderr).splitlines() if 'vitriol' in ln]
    assert p.returncode == 0 and not noise, p.stdout + p.stderr


def test_verify_can_fail(tmp_path):
    """The red run of the test above: an unknown directive is reported."""
    with open(FILES['vitriol.socket']) as f:
        (tmp_path / 'vitriol.socket').write_text(f.read() + '\n[Socket]\nStartLimitIntervalSec=0\nNoSuchThing=1\n')
    p = subprocess.run(['systemd-analyze', 'verify', '--man=no', str(tmp_path / 'vitriol.socket')],
                       capture_output=True, text=True)
    assert 'NoSuchThing' in p.stdout + p.stderr


HARDENING = {  # what a service that serves models from /var and devices can give up
    'NoNewPrivileges': 'yes', 'CapabilityBoundingSet': '', 'ProtectSystem': 'strict', 'ProtectHome': 'yes', 'PrivateTmp': 'yes',
    'DevicePolicy': 'closed', 'ProtectKernelTunables': 'yes', 'ProtectKernelModules': 'yes', 'ProtectKernelLogs': 'yes',
    'ProtectClock': 'yes', 'ProtectHostname': 'yes', 'RestrictNamespaces': 'yes', 'RestrictRealtime': 'yes',
    'RestrictSUIDSGID': 'yes', 'LockPersonality': 'yes', 'RemoveIPC': 'yes', 'SystemCallArchitectures': 'native',
    'RestrictAddressFamilies': 'AF_UNIX AF_INET AF_INET6', 'SystemCallFilter': '@system-service @pkey seccomp',
    'UMask': '0077', 'LimitCORE': '0', 'StateDirectoryMode': '0700', 'RuntimeDirectoryMode': '0750', 'User': 'vitriol',
    'OOMScoreAdjust': '-500', 'OOMPolicy': 'continue', 'Delegate': 'memory pids'}
# Each would break something: devices, the sampler's files, group access to them, the delegated cgroups, GPU libraries.
NOT_SET = ('PrivateDevices', 'ProcSubset', 'PrivateUsers', 'ProtectControlGroups', 'MemoryDenyWriteExecute', 'IPAddressDeny',
           'PrivateNetwork')
EXPOSURE = 2.2


def test_hardening():
    s = load(FILES['vitriold.service'])['Service']
    assert {k: s.get(k) for k in HARDENING} == HARDENING
    assert not [k for k in NOT_SET if k in s]


def exposure(text, tmp_path):
    (tmp_path / 'vitriold.service').write_text(re.sub(r'(?m)^ExecStart=\S+', 'ExecStart=/bin/true', text))
    p = subprocess.run(['systemd-analyze', 'security', '--offline=true', '--no-pager', str(tmp_path / 'vitriold.service')],
                       capture_output=True, text=True)
    return float(re.search(r'Overall exposure level for \S+: ([0-9.]+)', p.stdout).group(1))


@pytest.mark.skipif(not shutil.which('systemd-analyze'), reason='systemd is not installed')
def test_exposure(tmp_path):
    """systemd's own figure, and that the figure notices what is taken away."""
    with open(FILES['vitriold.service']) as f:
        text = f.read()
    assert exposure(text, tmp_path) <= EXPOSURE
    for key in ('CapabilityBoundingSet', 'SystemCallFilter', 'ProtectSystem', 'DevicePolicy'):
        assert exposure(re.sub('(?m)^%s=.*\n' % key, '', text), tmp_path) > EXPOSURE, key


ROWS = [  # action, unit, verb, in group, allowed
    ('org.freedesktop.systemd1.manage-units', 'vitriol.target', 'start', True, True),
    ('org.freedesktop.systemd1.manage-units', 'vitriold.service', 'restart', True, True),
    ('org.freedesktop.systemd1.manage-units', 'vitriol.socket', 'reset-failed', True, True),
    ('org.freedesktop.systemd1.manage-units', 'ssh.service', 'stop', True, False),
    ('org.freedesktop.systemd1.manage-units', 'vitriold.service', 'kill', True, False),
    ('org.freedesktop.systemd1.manage-units', 'vitriold.service', 'set-property', True, False),
    ('org.freedesktop.systemd1.manage-units', None, None, True, False),
    ('org.freedesktop.systemd1.manage-unit-files', 'vitriol.target', 'start', True, False),
    ('org.freedesktop.systemd1.manage-units', 'vitriol.target', 'start', False, False),
    ('org.freedesktop.systemd1.manage-units', 'vitriol.target.service', 'start', True, False),
    ('org.freedesktop.systemd1.manage-units', 'vitriold.service', 'clean', True, False),
    ('org.freedesktop.systemd1.manage-units', 'vitriold.service', 'freeze', True, False),
    ('org.freedesktop.systemd1.manage-units', 'vitriol-ready.service', 'start', True, False),
    ('org.freedesktop.systemd1.manage-units', 'VITRIOL.target', 'start', True, False),
    ('org.freedesktop.systemd1.manage-units', 'vitriol.target', 'start ', True, False),
    ('org.freedesktop.systemd1.reload-daemon', None, None, True, False),
]


@pytest.mark.skipif(not shutil.which('duk'), reason='no JavaScript interpreter (package duktape, the one polkit embeds)')
def test_polkit_rule(tmp_path):
    import json
    with open(os.path.join(UNITS, '60-vitriol.rules')) as f:
        rule = f.read()
    js = '''
var rule, out = [];
var polkit = {Result: {NOT_HANDLED: "not handled", YES: "yes"}, addRule: function (f) { rule = f; }};
%s
var rows = %s;
rows.forEach(function (r) {
    out.push(rule({id: r[0], lookup: function (k) { return k === "unit" ? r[1] : k === "verb" ? r[2] : undefined; }},
                  {isInGroup: function (g) { return r[3] && g === "vitriol-admin"; }}));
});
print(JSON.stringify(out));
''' % (rule, json.dumps(ROWS).replace('null', 'undefined'))
    (tmp_path / 't.js').write_text(js)
    got = json.loads(subprocess.check_output(['duk', str(tmp_path / 't.js')], text=True))
    assert got == ['yes' if r[4] else 'not handled' for r in ROWS]
