"""Officina without a screen, before a scripted gateway: a project folder, a state folder and a script."""
import json
import os
import re
import signal
import subprocess

from .appliance import PATIENCE, free_port, program, wait_for


class Gateway:
    """Plays a script (officina/test/script.h); records every request."""

    def __init__(self, folder, script):
        self.folder = str(folder)
        self.port = free_port()
        os.makedirs(os.path.join(self.folder, 'rec'), exist_ok=True)
        with open(os.path.join(self.folder, 'script'), 'w') as f:
            f.write(script)
        self.proc = subprocess.Popen([program('scripted-gateway'), f.name, '--port', str(self.port), '--record',
                                      os.path.join(self.folder, 'rec')], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        line = self.proc.stdout.readline()
        assert 'listening' in line, line

    @property
    def url(self):
        return 'http://127.0.0.1:%d' % self.port

    def requests(self):
        rec = os.path.join(self.folder, 'rec')
        return [open(os.path.join(rec, n), 'rb').read() for n in sorted(os.listdir(rec)) if n.startswith('request-')]

    def verdict(self):
        with open(os.path.join(self.folder, 'rec', 'verdict.json')) as f:
            return json.load(f)

    def stop(self, ok=True):
        self.proc.terminate()
        said = self.proc.stdout.read()
        rc = self.proc.wait(10 * PATIENCE)
        if ok:
            assert rc == 0, said
        return said


class Workshop:
    def __init__(self, tmp_path, script=None):
        self.project = tmp_path / 'project'
        self.project.mkdir(exist_ok=True)
        self.home = tmp_path / 'home'
        self.gateway = Gateway(tmp_path, script) if script else None
        self.env = dict(os.environ, OFFICINA_HOME=str(self.home), LC_ALL='C.UTF-8', TZ='UTC')
        self.env.pop('OFFICINA_CLOCK', None)

    def argv(self, *args):
        url = self.gateway.url if self.gateway else 'http://127.0.0.1:1'
        return [program('officina'), str(self.project), '--engine', url] + list(args)

    def run(self, *args, stdin=None, timeout=40, **env):
        return subprocess.run(self.argv(*args), input=stdin or '', capture_output=True, text=True, timeout=timeout * PATIENCE,
                              env=dict(self.env, **env))

    def ask(self, text, *args, **env):
        """One prompt; (exit code, the JSON object)."""
        p = self.run('-p', text, '--output-format', 'json', *args, **env)
        assert p.stdout.count('\n') == 1, (p.stdout, p.stderr)
        return p.returncode, json.loads(p.stdout)

    def lines(self, *inputs, args=(), **env):
        """stream-json in and out, all input at once."""
        p = self.run('--input-format', 'stream-json', '--output-format', 'stream-json', *args,
                     stdin=''.join(json.dumps(i) + '\n' for i in inputs), **env)
        return p.returncode, [json.loads(x) for x in p.stdout.splitlines()]

    def start(self, *args, **env):
        return Talk(self, args, env)


class Talk:
    """stream-json with somebody who answers."""

    def __init__(self, workshop, args, env):
        self.events = []
        self.proc = subprocess.Popen(workshop.argv('--input-format', 'stream-json', '--output-format', 'stream-json', *args),
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(workshop.env, **env))

    def put(self, **line):
        self.proc.stdin.write(json.dumps(line) + '\n')
        self.proc.stdin.flush()

    def until(self, type, **fields):
        """Reads on until such an event; returns it."""
        for line in self.proc.stdout:
            e = json.loads(line)
            self.events.append(e)
            if e['type'] == type and all(e.get(k) == v for k, v in fields.items()):
                return e
        raise AssertionError('it ended without %s %s: %s' % (type, fields, self.events))

    def kill(self):
        self.proc.send_signal(signal.SIGKILL)
        self.proc.wait(10 * PATIENCE)

    def close(self):
        self.proc.stdin.close()
        for line in self.proc.stdout:
            self.events.append(json.loads(line))
        return self.proc.wait(20 * PATIENCE)


def messages(request):
    """The bytes of the messages: what must only grow."""
    return request[:request.rindex(b'],"stream":true')]


def grows(requests):
    return all(messages(b).startswith(messages(a)) for a, b in zip(requests, requests[1:]))


__all__ = ['Gateway', 'Workshop', 'Talk', 'messages', 'grows', 'wait_for', 're']
