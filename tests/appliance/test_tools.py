"""Tool calls and reasoning as the public `openai` client sees them: scripted answers of the stub engine, and forced calls of
the real one."""
import json
import os
import tempfile

import openai
import pytest

from harness import stream
from harness.appliance import Appliance
from harness.text import prose

TOOLS = [{'type': 'function', 'function': {'name': 'get_weather', 'description': 'Weather of a city', 'parameters': {
    'type': 'object', 'properties': {'city': {'type': 'string', 'enum': ['Oslo', 'Rome']}}, 'required': ['city'],
    'additionalProperties': False}}},
    {'type': 'function', 'function': {'name': 'stop_clock', 'parameters': {'type': 'object', 'properties': {},
                                                                           'additionalProperties': False}}}]
ASK = [{'role': 'user', 'content': 'Weather in Oslo?'}]


def client_of(app):
    return openai.OpenAI(base_url='http://127.0.0.1:%d/v1' % app.port, api_key='x', max_retries=0)


@pytest.fixture(scope='module')
def real():
    with Appliance(sets={'engine.ctx_tokens': 1024, 'engine.slots': 2}) as a:
        yield a


def scripted(real, text, rate=100):
    """An appliance whose engine says exactly that text, so many tokens a second."""
    ids = stream.post(real.port, '/tokenize', {'content': text}).json()['tokens']
    script = os.path.join(tempfile.mkdtemp(prefix='vt', dir=real.root), 'script')
    with open(script, 'w') as f:
        f.write(' '.join(map(str, ids)))
    return Appliance(engine='stub', stub_args='rate=%d,script=%s' % (rate, script), sets={'engine.ctx_tokens': 2048, 'engine.slots': 2})


def collect(chunks):
    """The message that a stream's deltas make, and the rules that they keep."""
    content, reasoning, calls, finish = '', '', [], None
    for c in chunks:
        d = c.choices[0].delta
        content += d.content or ''
        reasoning += getattr(d, 'reasoning_content', None) or ''
        for t in d.tool_calls or []:
            if t.index == len(calls):
                assert t.id and t.function.name and t.function.arguments == ''
                calls.append([t.id, t.function.name, '', 0])
            else:
                assert t.id is None and t.function.name is None and t.index == len(calls) - 1
                calls[t.index][2] += t.function.arguments
                calls[t.index][3] += 1
        finish = c.choices[0].finish_reason or finish
    return content, reasoning, calls, finish


def test_calls_and_reasoning(real):
    text = ('<think>\nI must look.\n</think>\n\nLooking.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n'
            '</tool_call>\n<tool_call>\n{"name": "stop_clock", "arguments": {}}\n</tool_call>')
    with scripted(real, text) as app:
        ask = dict(model='x', messages=ASK, tools=TOOLS)
        plain = client_of(app).chat.completions.create(**ask).choices[0]
        assert plain.finish_reason == 'tool_calls' and plain.message.content == 'Looking.'
        assert plain.message.reasoning_content == 'I must look.'
        content, reasoning, calls, finish = collect(client_of(app).chat.completions.create(stream=True, **ask))
        assert (content, reasoning, finish) == ('Looking.', 'I must look.', 'tool_calls')
        assert [c[1:3] for c in calls] == [[t.function.name, t.function.arguments] for t in plain.message.tool_calls]
        assert json.loads(calls[0][2]) == {'city': 'Oslo'} and len({c[0] for c in calls}) == 2
        assert calls[0][3] > 1, 'the arguments came in one piece'
        one = client_of(app).chat.completions.create(parallel_tool_calls=False, **ask).choices[0]
        assert [t.function.name for t in one.message.tool_calls] == ['get_weather']
        kept = client_of(app).chat.completions.create(extra_body={'reasoning_format': 'none'}, **ask).choices[0]
        assert kept.message.content.startswith('<think>') and 'I must look.' in kept.message.content
        # without tools, and with tool_choice none, a call is text
        off = client_of(app).chat.completions.create(tool_choice='none', **ask).choices[0]
        assert off.finish_reason == 'stop' and '<tool_call>' in off.message.content and not off.message.tool_calls
        # and the answer goes back into the template
        talk = ASK + [plain.message.model_dump(exclude_none=True)] + [
            {'role': 'tool', 'tool_call_id': t.id, 'content': '3 degrees'} for t in plain.message.tool_calls]
        prompt = stream.post(app.port, '/apply-template', {'messages': talk, 'tools': TOOLS}).json()['prompt']
        assert 'get_weather' in prompt and '"city": "Oslo"' in prompt and '3 degrees' in prompt


def test_malformed_call_is_told(real):
    with scripted(real, 'Hm. <tool_call>\n{"name": "get_weather", "arguments": {"city": Oslo}}\n</tool_call> so') as app:
        plain = client_of(app).chat.completions.create(model='x', messages=ASK, tools=TOOLS).choices[0]
        assert plain.finish_reason == 'stop' and not plain.message.tool_calls
        assert '"city": Oslo}}' in plain.message.content and plain.message.content.endswith('so')
        with pytest.raises(openai.APIError) as e:
            collect(client_of(app).chat.completions.create(model='x', messages=ASK, tools=TOOLS, stream=True))
        assert 'tool call' in str(e.value)


@pytest.mark.parametrize('choice', ['required', {'type': 'function', 'function': {'name': 'get_weather'}}], ids=['required', 'named'])
def test_forced_call(real, choice):
    """The model that comes with the tests knows no tools: the grammar alone makes it call one."""
    ask = dict(model='x', messages=ASK, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, max_tokens=200,
               extra_body={'enable_thinking': False})
    c = client_of(real).chat.completions.create(**ask).choices[0]
    assert c.finish_reason == 'tool_calls' and len(c.message.tool_calls) == 1
    f = c.message.tool_calls[0].function
    assert f.name in ('get_weather', 'stop_clock') and (f.name == 'get_weather' or choice == 'required')
    assert f.name == 'stop_clock' or json.loads(f.arguments)['city'] in ('Oslo', 'Rome')


@pytest.mark.parametrize('fields', [{'tool_choice': 'sometimes'}, {'tool_choice': {'type': 'function', 'function': {'name': 'nope'}}},
                                    {'tool_choice': 'required', 'tools': []}], ids=['word', 'unknown', 'no tools'])
def test_bad_choice(real, fields):
    r = stream.post(real.port, '/v1/chat/completions', dict({'messages': ASK, 'tools': TOOLS}, **fields))
    assert r.status == 400 and r.json()['error']['param'] == 'tool_choice'


@pytest.mark.parametrize('streaming', [False, True], ids=['plain', 'stream'])
def test_forced_call_that_the_limit_cuts(real, streaming):
    """No mark becomes content, at whatever token the limit falls; what is there of a call is a beginning of the whole one."""
    def ask(n):
        body = dict(messages=ASK, tools=TOOLS, tool_choice={'type': 'function', 'function': {'name': 'get_weather'}}, temperature=0,
                    parallel_tool_calls=False, max_tokens=n, enable_thinking=False)
        if not streaming:
            c = stream.post(real.port, '/v1/chat/completions', body).json()['choices'][0]
            m = c['message']
            return m['content'] or '', [t['function'] for t in m.get('tool_calls', [])], c['finish_reason']
        s = stream.Stream(real.port, '/v1/chat/completions', body).run()
        assert stream.check_transcript(s, ('normal',)) == 'normal'
        f = [t['function'] for e in s.json_events() for c in e['choices'] for t in c['delta'].get('tool_calls', [])]
        call = [{'name': f[0]['name'], 'arguments': ''.join(x['arguments'] for x in f)}] if f else []
        return s.text, call, s.finish
    content, whole, finish = ask(200)
    assert content == '' and finish == 'tool_calls' and json.loads(whole[0]['arguments'])['city'] in ('Oslo', 'Rome')
    seen = 0
    for n in range(1, 60):
        content, calls, finish = ask(n)
        if finish == 'tool_calls':
            break
        assert content == '' and finish == 'length', (n, content, finish)
        assert [c['name'] for c in calls] in ([], ['get_weather'])
        assert not calls or whole[0]['arguments'].startswith(calls[0]['arguments'])
        seen += bool(calls)
    assert seen and n > 5, 'the limit fell nowhere inside of the call'


@pytest.mark.parametrize('streaming', [False, True], ids=['plain', 'stream'])
@pytest.mark.parametrize('stop', ['"city', 'ity":', 'get_', '{"', '}'])
def test_forced_call_that_a_stop_string_cuts(real, streaming, stop):
    """What the client asked to be cut is cut, and it is told so: the beginning of a call, and no word of a whole one."""
    body = dict(messages=ASK, tools=TOOLS, tool_choice={'type': 'function', 'function': {'name': 'get_weather'}}, temperature=0,
                parallel_tool_calls=False, max_tokens=200, enable_thinking=False, stop=[stop])
    if streaming:
        s = stream.Stream(real.port, '/v1/chat/completions', body).run()
        assert stream.check_transcript(s, ('normal',)) == 'normal'
        calls = [t['function'] for e in s.json_events() for c in e['choices'] for t in c['delta'].get('tool_calls', [])]
        content, arguments, finish = s.text, ''.join(f['arguments'] for f in calls), s.finish
    else:
        r = stream.post(real.port, '/v1/chat/completions', body)
        assert r.status == 200, r.raw
        c = r.json()['choices'][0]
        calls = [t['function'] for t in c['message'].get('tool_calls', [])]
        content, arguments, finish = c['message']['content'] or '', ''.join(f['arguments'] for f in calls), c['finish_reason']
    assert content == '' and finish == 'stop' and stop not in arguments
    assert arguments == '' or arguments.startswith('{')


def test_function_that_nobody_offered(real):
    with scripted(real, '<tool_call>\n{"name": "rm_rf", "arguments": {"path": "/"}}\n</tool_call>') as app:
        plain = client_of(app).chat.completions.create(model='x', messages=ASK, tools=TOOLS).choices[0]
        assert plain.finish_reason == 'stop' and not plain.message.tool_calls and '"rm_rf"' in plain.message.content
        content, _, calls, finish = collect(client_of(app).chat.completions.create(model='x', messages=ASK, tools=TOOLS, stream=True))
        assert (content, calls, finish) == (plain.message.content, [], 'stop')


@pytest.mark.parametrize('function,param', [({'name': 'f', 'parameters': 5}, 'tools[1].function.parameters'),
                                            ({'name': ''}, 'tools[1].function.name'), (None, 'tools[1].function')])
@pytest.mark.parametrize('choice', ['auto', 'none', 'required'])
def test_bad_tools(real, function, param, choice):
    tools = TOOLS[:1] + [{'type': 'function', 'function': function}]
    r = stream.post(real.port, '/v1/chat/completions', {'messages': ASK, 'tools': tools, 'tool_choice': choice})
    assert r.status == 400 and r.json()['error']['param'] == param, r.json()
    assert param in r.json()['error']['message']


def test_assistant_alone_is_continued(real):
    r = stream.post(real.port, '/v1/chat/completions', {'messages': [{'role': 'assistant', 'content': 'The sea'}], 'max_tokens': 8})
    assert r.status == 200 and r.json()['usage']['completion_tokens'] >= 1


def test_slot_names_have_255_bytes(real):
    def save(name):
        return stream.post(real.port, '/slots/0?action=save', {'filename': name})
    stream.post(real.port, '/completion', {'prompt': prose(3000), 'n_predict': 4, 'id_slot': 0}).read()
    r = save('x' * 255)
    assert r.status == 200 and r.json()['filename'] == 'x' * 255
    back = stream.post(real.port, '/slots/0?action=restore', {'filename': 'x' * 255})
    assert back.status == 200, back.json()
    assert back.json()['n_restored'] > 0
    r = save('x' * 256)
    assert r.status == 400 and r.json()['error']['param'] == 'filename'
