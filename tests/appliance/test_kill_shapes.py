"""kill -9 of the engine inside of thoughts, of a tool call and of an answer with a grammar: what the client puts together equals
what it gets undisturbed, and its chunks keep the rules of a stream that nothing happened to."""
import json
import os
import tempfile

import pytest

from harness import stream
from harness.appliance import Appliance, wait_for
from harness.stream import check_transcript

CHAT = '/v1/chat/completions'
ASK = [{'role': 'user', 'content': 'Write it down.'}]
NOTE = {'type': 'object', 'properties': {'title': {'type': 'string', 'minLength': 40, 'maxLength': 60},
                                         'lines': {'type': 'array', 'minItems': 3, 'maxItems': 4, 'items': {'type': 'string', 'minLength': 30,
                                                                                                         'maxLength': 60}}},
        'required': ['title', 'lines'], 'additionalProperties': False}
TOOLS = [{'type': 'function', 'function': {'name': 'note', 'parameters': NOTE}}]
FREE = {'messages': ASK, 'tools': TOOLS, 'max_tokens': 1000}
FORCED = {'messages': ASK, 'tools': TOOLS, 'tool_choice': 'required', 'parallel_tool_calls': False, 'temperature': 0, 'max_tokens': 700,
          'enable_thinking': False}
SCHEMA = {'messages': ASK, 'response_format': {'type': 'json_schema', 'json_schema': {'schema': NOTE}}, 'temperature': 0, 'max_tokens': 700,
          'enable_thinking': False}
SCRIPT = ('<think>\nThe note wants a title and lines; first the title, then line after line of it, until all is said.\n</think>\n\n'
          'I write it down, one moment.\n<tool_call>\n{"name": "note", "arguments": ' +
          json.dumps({'title': 'A walk by the sea, \u00e9t\u00e9 \u2603', 'lines': ['line %d of the walk, "quoted" <b>' % i for i in range(6)]}, ensure_ascii=False) +
          '}\n</tool_call>\n<tool_call>\n{"name": "note", "arguments": {"title": "second", "lines": []}}\n</tool_call>')


@pytest.fixture(scope='module')
def real():
    with Appliance(sets={'engine.ctx_tokens': 2048, 'engine.slots': 2}) as a:
        yield a


@pytest.fixture(scope='module')
def scripted(real):
    ids = stream.post(real.port, '/tokenize', {'content': SCRIPT}).json()['tokens']
    path = os.path.join(tempfile.mkdtemp(prefix='vt', dir=real.root), 'script')
    with open(path, 'w') as f:
        f.write(' '.join(map(str, ids)))
    with Appliance(engine='stub', stub_args='rate=150,script=' + path, sets={'engine.ctx_tokens': 2048, 'engine.slots': 2}) as a:
        yield a


def kill(app):
    old = app.kill('engine0')
    wait_for('vitriold has seen it', lambda: app.children().get('engine0') != old, 10)
    app.ctl('reset', 'engine0', check=False)


def answer(app, body, kill_at=None):
    """What a client puts together, and how many deltas it took; the engine is killed when kill_at of them have come."""
    app.wait_ready()
    s = stream.Stream(app.port, CHAT, body)
    content, reasoning, calls, n, killed_in = '', '', [], 0, None
    for ev in s.events():
        for c in ev['choices']:
            d = c['delta']
            kind = next((k for k in ('reasoning_content', 'content', 'tool_calls') if d.get(k)), None)
            content += d.get('content') or ''
            reasoning += d.get('reasoning_content') or ''
            for t in d.get('tool_calls', []):
                if t['index'] == len(calls):
                    assert t['id'] and t['type'] == 'function' and t['function']['arguments'] == ''
                    calls.append([t['function']['name'], ''])
                else:
                    assert t['index'] == len(calls) - 1 and 'id' not in t and 'name' not in t['function']
                    calls[-1][1] += t['function']['arguments']
            n += kind is not None
            if kind and n == kill_at:
                killed_in = kind
                kill(app)
    assert check_transcript(s, ('normal',)) == 'normal'
    assert kill_at is None or killed_in, 'the answer was over before the kill'
    return (content, reasoning, calls, s.finish), n, killed_in


def disturbed(app, body, at):
    """At these parts of the answer. Returns the kinds of deltas that the kills fell into."""
    want, n, _ = answer(app, body)
    assert n > 20, 'the answer is too short to be killed in'
    kinds = []
    for part in at:
        got, _, kind = answer(app, body, max(1, int(n * part)))
        assert got == want, 'killed at delta %d of %d' % (int(n * part), n)
        kinds.append(kind)
    return want, kinds


def test_thoughts_and_free_calls(scripted):
    want, kinds = disturbed(scripted, FREE, (0.02, 0.2, 0.35, 0.5, 0.7, 0.95))
    assert {'reasoning_content', 'tool_calls'} <= set(kinds), kinds
    assert want[3] == 'tool_calls' and [c[0] for c in want[2]] == ['note', 'note'] and want[0] == 'I write it down, one moment.'
    assert json.loads(want[2][0][1])['lines'][5].startswith('line 5') and want[1].startswith('The note')


def test_forced_call(real):
    want, kinds = disturbed(real, FORCED, (0.03, 0.2, 0.4, 0.6, 0.9))
    assert set(kinds) == {'tool_calls'} and want[3] == 'tool_calls' and len(json.loads(want[2][0][1])['lines']) in (3, 4)


def test_schema(real):
    want, kinds = disturbed(real, SCHEMA, (0.03, 0.2, 0.4, 0.6, 0.9))
    assert set(kinds) == {'content'} and want[3] == 'stop' and set(json.loads(want[0])) == {'title', 'lines'}
