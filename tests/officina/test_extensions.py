"""Extensions: what they may contribute, and what a bad one may do to a conversation."""
import json
import sys
import time

import pytest

from harness.workshop import Workshop, grows

# An extension as a program: `answer(m)` gives what it says to a message.
FRAME = '''
import json, sys, time
def say(**o):
    print(json.dumps(o), flush=True)
%s
for line in sys.stdin:
    m = json.loads(line)
    with open(%r, 'a') as f:
        f.write(line)
    if m['type'] == 'hello':
        say(id=m['id'], type='hello', name='lint', version=1, **HELLO)
    else:
        answer(m)
'''


@pytest.fixture
def shop(tmp_path):
    shops = []

    def make(script):
        shops.append(Workshop(tmp_path, script))
        return shops[-1]
    yield make
    for s in shops:
        if s.gateway.proc.poll() is None:
            s.gateway.stop(False)


def extend(w, code, conf='', name='lint', base=None):
    """Puts an extension into the state folder; returns the log of what it heard."""
    folder = (base or w.home) / 'ext' / name
    folder.mkdir(parents=True)
    w.home.chmod(0o700)
    log = folder / 'heard'
    (folder / 'main.py').write_text(FRAME % (code, str(log)))
    (folder / 'ext.conf').write_text('command = %s\nargs = %s\n%s' % (sys.executable, folder / 'main.py', conf))
    return lambda: [json.loads(x) for x in log.read_text().splitlines()] if log.exists() else []


def test_events_are_told_in_order(shop):
    w = shop('ON 1 call read {"path":"a.txt"} end\n'
             'ON 2 expect result call_1 contains "one" expect any "The extension ext:lint says" say "seen" end\n')
    (w.project / 'a.txt').write_text('one\n')
    heard = extend(w, '''
HELLO = {'events': ['session_start', 'before_tool', 'after_tool', 'before_request', 'turn_end', 'nonsense']}
def answer(m):
    if m['name'] == 'before_tool':
        say(id=m['id'], type='verdict', verdict='allow')
    elif m['name'] == 'before_request':
        say(id=m['id'], type='note', text='mind the gap' if m['requests'] else '')
''', 'events = session_start, before_tool, after_tool, before_request, turn_end\n')
    rc, out = w.ask('look')
    assert (rc, out['text']) == (0, 'seen'), out
    m = heard()
    assert [x.get('name', x['type']) for x in m] == ['hello', 'session_start', 'before_request', 'before_tool', 'after_tool',
                                                     'before_request', 'turn_end'][:len(m)], m
    assert len(m) >= 6 and m[3]['tool'] == 'read' and m[3]['arguments'] == {'path': 'a.txt'} and m[3]['mode'] == 'build'
    assert 'one' in m[4]['text'] and m[4]['failed'] is False
    assert b'mind the gap' in w.gateway.requests()[1] and b'mind the gap' not in w.gateway.requests()[0]
    assert grows(w.gateway.requests())
    w.gateway.stop()


@pytest.mark.parametrize('verdict, options, rc, words', [
    ('deny', ['--allow', 'bash:*'], 3, 'ext:lint: not today'),
    ('ask', ['--allow', 'bash:*'], 3, 'nobody can be asked: ext:lint: not today'),
    ('allow', [], 3, 'nobody can be asked'),           # it does not override the user's rules
    ('allow', ['--deny', 'bash:*'], 3, 'denied by a rule'),
    ('allow', ['--mode', 'plan'], 0, 'refused'),       # nor Plan
    ('pass', ['--allow', 'bash:*'], 0, ''),
    ('maybe', ['--allow', 'bash:*'], 0, 'its answer is no verdict; without its verdict the call is not run'),
])
def test_verdicts_make_stricter_only(shop, verdict, options, rc, words):
    w = shop('ON 1 call bash {"command":"touch made"} end\nON 2 expect result call_1 contains %s say "so" end\n' % json.dumps(words))
    extend(w, '''
HELLO = {'events': ['before_tool']}
def answer(m):
    say(id=m['id'], type='verdict', verdict=%r, reason='not today')
''' % verdict, 'events = before_tool\n')
    got, out = w.ask('do it', *options)
    assert (got, out['text']) == (rc, 'so'), out
    assert (w.project / 'made').exists() == (verdict == 'pass')
    w.gateway.stop()


def test_a_command_and_a_tool(shop):
    w = shop('ON 1 expect last "check src now" call mcp {"server":"ext:lint","tool":"lint","arguments":{"of":"src"}} end\n'
             'ON 2 expect result call_1 contains "2 faults in src" say "two" end\n')
    heard = extend(w, '''
HELLO = {'tools': [{'name': 'lint', 'description': 'counts faults', 'schema': {'type': 'object'}}], 'commands': ['/lint'],
         'events': ['before_tool'], 'panel': True}
def answer(m):
    if m['type'] == 'command':
        say(type='panel', lines=['2 faults', '\\x1b[31mred'])
        say(id=m['id'], type='result', text='looked', prompt='check %s now' % m['arguments'])
    elif m['type'] == 'call':
        say(id=m['id'], type='progress', text='1 of 2')
        say(id=m['id'], type='result', text='2 faults in ' + m['arguments']['of'])
''', 'commands = /lint /other\n')
    t = w.start('--allow', 'mcp:ext:lint/*')
    t.put(type='command', text='/lint src')
    e = t.until('turn_end')
    assert t.close() == 0, t.events
    assert any(x['type'] == 'notice' and x['text'] == '/lint: looked' for x in t.events), t.events
    assert [m['type'] for m in heard()] == ['hello', 'command', 'call']  # its own tool is not judged by itself
    assert e['state'] == 'done'
    w.gateway.stop()


@pytest.mark.parametrize('code, words', [
    ('sys.stdout.write("no JSON at all\\n" * 101)', 'lines that are no messages'),
    ('sys.stdout.write(json.dumps({"type": "progress", "id": 7, "text": "x"}) + "\\n") if 0 else '
     'sys.stdout.write((json.dumps({"type": "panel", "lines": ["x"] * 99}) + "\\n") * 5000)', 'floods'),
    ('sys.stdout.write("x" * (5 << 20))', 'a line of more than 4 MiB'),
    ('sys.exit(3)', 'it has ended'),
    ('sys.stdout.buffer.write(bytes(range(256)) * 50 + b"\\n"); say(id=m["id"], type="result", text="fine \\x1b[2J\\x07")', 'fine'),
    ('say(id=m["id"], type="result", text="x" * 3000000)', 'xxx'),
    ('say(id=m["id"] + 1, type="result", text="other"); say(id=m["id"], type="result"); say(id=m["id"], type="result", text="again")', ''),
])
def test_hostile_extensions(shop, code, words):
    w = shop('ON 1 call mcp {"server":"ext:lint","tool":"t"} end\n'
             'ON 2 expect result call_1 contains %s expect result call_1 lacks "\\u001b" call read {"path":"a.txt"} end\n'
             'ON 3 expect result call_2 contains "one" say "alive" end\n' % json.dumps(words))
    (w.project / 'a.txt').write_text('one\n')
    extend(w, '''
HELLO = {'tools': [{'name': 't'}], 'panel': True}
def answer(m):
    %s
    sys.stdout.flush()
''' % code)
    rc, out = w.ask('go', '--allow', 'mcp:ext:lint/*')
    assert (rc, out['text']) == (0, 'alive'), out
    w.gateway.stop()


def test_an_extension_that_hangs(shop):
    """Five seconds for a verdict; the call fails and the conversation goes on."""
    w = shop('ON 1 call read {"path":"a.txt"} end\n'
             'ON 2 expect result call_1 contains "no answer within the time; without its verdict" say "on" end\n')
    (w.project / 'a.txt').write_text('one\n')
    extend(w, 'HELLO = {"events": ["before_tool"]}\ndef answer(m):\n    pass\n', 'events = before_tool\n')
    began = time.monotonic()
    rc, out = w.ask('go')
    assert (rc, out['text']) == (0, 'on'), out
    assert 4 < time.monotonic() - began < 40
    w.gateway.stop()


def test_three_faults_switch_it_off(shop):
    """A guard that dies at each call: the calls fail, the fourth is not asked about any more."""
    w = shop('ON 1 call read {"path":"a.txt"} call read {"path":"a.txt","start":1} call read {"path":"a.txt","lines":1} '
             'call read {"path":"a.txt","lines":2} end\n'
             'ON 2 expect result call_1 contains "it has ended; without its verdict" expect result call_3 contains "off for this session" '
             'expect result call_4 contains "one" say "on" end\n')
    (w.project / 'a.txt').write_text('one\n')
    extend(w, 'HELLO = {"events": ["before_tool"]}\ndef answer(m):\n    sys.exit(1)\n', 'events = before_tool\n')
    rc, out = w.ask('go')
    assert (rc, out['text']) == (0, 'on'), out
    w.gateway.stop()


def test_a_project_brings_extensions_only_after_trust(shop):
    w = shop('ON 1 say "one" end\nON 2 say "two" end\n')
    w.home.mkdir(mode=0o700)
    heard = extend(w, 'HELLO = {"events": ["turn_end"]}\ndef answer(m):\n    pass\n',
                   'events = session_start, turn_end\n', base=w.project / '.officina')
    assert w.ask('go')[0] == 0
    assert heard() == []
    w.lines({'type': 'command', 'text': '/trust'}, {'type': 'user', 'text': 'again'})
    assert [m['type'] for m in heard()][:1] == ['hello']
    before = len(heard())
    w.lines()  # trusted, but nothing of a project runs at the start
    assert len(heard()) == before
    w.gateway.stop()


# ---- commands of commands/NAME.md ----

def command(w, name, text):
    (w.home / 'commands').mkdir(parents=True, exist_ok=True)
    w.home.chmod(0o700)
    (w.home / 'commands' / (name + '.md')).write_text(text)


def run_command(w, line, *args):
    rc, events = w.lines({'type': 'command', 'text': line}, args=args)
    return rc, events


def test_a_command_with_shell_and_file(shop):
    w = shop('ON 1 expect last "Look: <int x;> <3> <a b> <$1>" say "seen" end\nON 2 expect extends say "more" end\n')
    (w.project / 'a b.c').write_text('int x;\n')
    command(w, 'look', '---\ndescription: looks\n---\nLook: <@{$1}> <!{expr 1 + 2}> <!{printf %s "$1" | cut -c1-3}> <!{printf \'$1\'}>\n')
    rc, events = run_command(w, '/look "a b.c"', '--allow', 'bash:expr *', '--allow', 'bash:printf *')
    assert rc == 0, events
    calls = [(e['name'], e['arguments']) for e in events if e['type'] == 'tool_call']
    assert calls[0] == ('read', {'path': 'a b.c', 'raw': True}) and len(calls) == 4, calls
    assert [e['text'] for e in events if e['type'] == 'text'] == ['seen']
    assert w.ask('go on', '--resume', 'last')[1]['text'] == 'more'  # the same bytes after a restart
    w.gateway.stop()


@pytest.mark.parametrize('body, options, rc, words', [
    ('!{touch made}', [], 3, '/do was not sent: touch made'),
    ('!{touch made}', ['--mode', 'plan'], 3, '/do was not sent: touch made'),
    ('@{none.txt}', [], 2, '/do was not sent: none.txt'),
    ('@{../../../etc/passwd}', [], 2, '/do was not sent'),
    ('@{.env}', [], 3, '/do was not sent'),
    ('!{make', [], 0, '/do: the command'),
    ('!{touch made}', ['--deny', 'bash:touch *'], 3, '/do was not sent'),
])
def test_a_command_that_may_not(shop, body, options, rc, words):
    w = shop('ON 1 expect last "and then" expect none "do was" say "well" end\n')
    (w.project / '.env').write_text('A=secret\n')
    command(w, 'do', 'Do ' + body)
    got, events = w.lines({'type': 'command', 'text': '/do'}, args=options)
    assert got == rc, events
    assert any(e['type'] == 'notice' and words in e['text'] for e in events), events
    assert not (w.project / 'made').exists()
    assert w.gateway.requests() == []
    assert w.ask('and then', *(['--resume', 'last'] if rc else []))[1]['text'] == 'well'
    assert b'touch' not in w.gateway.requests()[0]
    w.gateway.stop()


def test_a_skill_by_its_name(shop):
    w = shop('ON 1 expect last "Use the skill tidy" expect last "Keep !{ls} as it is" expect last "src only" say "so be it" end\n')
    (w.home / 'skills' / 'tidy').mkdir(parents=True)
    w.home.chmod(0o700)
    (w.home / 'skills' / 'tidy' / 'SKILL.md').write_text('---\nname: tidy\ndescription: tidies\n---\nKeep !{ls} as it is\n')
    rc, events = run_command(w, '/tidy src only')
    assert rc == 0 and [e['text'] for e in events if e['type'] == 'text'] == ['so be it'], events
    w.gateway.stop()


def test_a_commands_call_is_approved_and_rewound(shop):
    w = shop('ON 1 expect last "Result: done (and failed) [exit status 1]" say "fine" end\n')
    command(w, 'do', 'Result: !{touch made; echo done} (and failed) !{false; exit 1}')
    t = w.start()
    t.put(type='command', text='/do')
    ask = t.until('approval')
    assert ask['name'] == 'bash' and ask['what'] == 'touch made; echo done'
    t.put(type='approve', id=ask['id'])
    t.put(type='approve', id=t.until('approval')['id'])
    assert t.until('turn_end')['state'] == 'done'
    assert (w.project / 'made').exists()
    t.put(type='rewind', turn='t0001', what='both')
    t.until('rewind')
    assert t.close() == 0
    assert not (w.project / 'made').exists()
    w.gateway.stop()
