"""Constrained answers of the embedded model: at a temperature at which it would talk nonsense, everything validates."""
import json
import re

import jsonschema
import pytest

from harness import stream
from harness.appliance import Appliance, wait_for

SCHEMA = {
    'type': 'object', 'additionalProperties': False, 'required': ['title', 'year', 'tags', 'kind'],
    'properties': {
        'title': {'type': 'string', 'minLength': 1, 'maxLength': 24},
        'year': {'type': 'integer', 'minimum': 1850, 'maximum': 1999},
        'rating': {'type': 'number', 'minimum': 0, 'maximum': 5},
        'tags': {'type': 'array', 'items': {'type': 'string', 'pattern': '^[a-z]{2,8}$'}, 'minItems': 1, 'maxItems': 4},
        'kind': {'enum': ['novel', 'poem', 'letter', None]},
        'parts': {'type': 'array', 'maxItems': 2, 'items': {'$ref': '#/$defs/part'}},
    },
    '$defs': {'part': {'type': 'object', 'additionalProperties': False, 'required': ['n'],
                       'properties': {'n': {'type': 'integer', 'minimum': 0, 'maximum': 9},
                                      'parts': {'type': 'array', 'maxItems': 2, 'items': {'$ref': '#/$defs/part'}}}}},
}
LOGIC = {
    'type': 'object', 'required': ['kind', 'pages', 'shelves'],
    'properties': {
        'kind': {'enum': ['novel', 'poem', 'letter'], 'not': {'const': 'letter'}},
        'pages': {'type': 'integer', 'minimum': 1, 'maximum': 990, 'multipleOf': 11},
        'shelves': {'type': 'array', 'items': {'enum': ['a', 'b', 'c', 'd']}, 'uniqueItems': True, 'minItems': 2},
        'marks': {'type': 'array', 'items': {'type': 'integer', 'minimum': 0, 'maximum': 9}, 'contains': {'type': 'integer', 'minimum': 8}, 'maxItems': 4},
        'verses': {'type': 'integer', 'minimum': 1, 'maximum': 99}},
    'if': {'properties': {'kind': {'const': 'poem'}}}, 'then': {'required': ['verses']}, 'else': {'properties': {'verses': False}},
    'additionalProperties': False}
HOT = {'temperature': 1.5, 'top_k': 0, 'top_p': 1, 'min_p': 0}


@pytest.fixture(scope='module')
def app():
    with Appliance(sets={'engine.ctx_tokens': 2048, 'engine.slots': 4}) as a:
        yield a


def post(app, path, **body):
    return stream.post(app.port, path, body)


def valid(text, schema=SCHEMA):
    v = json.loads(text)
    jsonschema.Draft202012Validator(schema).validate(v)
    return v


def test_twenty_hot_answers_validate(app):
    seen = set()
    for seed in range(20):
        r = post(app, '/completion', prompt='A book: ', json_schema=SCHEMA, n_predict=1200, seed=seed, **HOT)
        body = r.json()
        assert r.status == 200 and body['stop_type'] == 'eos', body
        valid(body['content'])
        seen.add(body['content'])
    assert len(seen) > 15, 'the answers do not differ: the temperature had no effect'


def test_conditions_multiples_and_sets(app):
    kinds = set()
    for seed in range(12):
        body = post(app, '/completion', prompt='A book: ', json_schema=LOGIC, n_predict=600, seed=seed, **HOT).json()
        assert body['stop_type'] == 'eos', body
        kinds.add(valid(body['content'], LOGIC)['kind'])
    assert kinds == {'novel', 'poem'}, 'one branch never came'


def test_every_surface(app):
    chat = [{'role': 'user', 'content': 'Tell me of a book.'}]
    strict = {'type': 'json_schema', 'json_schema': {'name': 'book', 'strict': True, 'schema': SCHEMA}}
    for seed in range(3):
        more = dict(HOT, seed=seed, max_tokens=1200)
        a = post(app, '/v1/chat/completions', messages=chat, response_format=strict, **more).json()['choices'][0]
        assert a['finish_reason'] == 'stop'
        valid(a['message']['content'])
        a = post(app, '/v1/completions', prompt='A book: ', response_format={'type': 'json_schema', 'schema': SCHEMA}, **more)
        valid(a.json()['choices'][0]['text'])
        a = post(app, '/v1/completions', prompt='The rhyme: ', grammar='root ::= line{3}\nline ::= [a-z]{1,12} (" " [a-z]{1,12}){0,4} "\\n"',
                 **more).json()['choices'][0]
        assert re.fullmatch(r'([a-z]{1,12}( [a-z]{1,12}){0,4}\n){3}', a['text']), a
        a = post(app, '/v1/chat/completions', messages=chat, response_format={'type': 'json_object'}, **dict(more, max_tokens=300))
        a = a.json()['choices'][0]
        if a['finish_reason'] == 'stop':
            assert isinstance(json.loads(a['message']['content']), dict)
        else:
            assert a['message']['content'].startswith('{')


def test_greedy_and_penalties_act_behind_the_mask(app):
    r = post(app, '/completion', prompt='Answer yes or no: ', grammar='root ::= "yes" | "no"', temperature=0, n_predict=20)
    assert r.json()['content'] in ('yes', 'no') and r.json()['stop_type'] == 'eos'
    r = post(app, '/completion', prompt='yes no yes no', json_schema=SCHEMA, n_predict=1200, seed=3, repeat_penalty=2,
             presence_penalty=2, dry_multiplier=1, **HOT)
    valid(r.json()['content'])


@pytest.mark.parametrize('at', [1, 6, 14, 25])
def test_killed_in_the_middle_it_still_validates(app, at):
    """The grammar goes with the request to the next engine and takes up where the client's text stands."""
    app.wait_ready()
    body = dict(HOT, prompt='A book: ', json_schema=SCHEMA, n_predict=1200, seed=100 + at, stream=True)
    want = post(app, '/completion', **dict(body, stream=False)).json()['content']
    s = stream.Stream(app.port, '/completion', body)
    s.run(until_events=at)
    assert s.end is None, 'the answer was over before the kill'
    old = app.kill('engine0')
    wait_for('vitriold has seen it', lambda: app.children().get('engine0') != old, 10)
    app.ctl('reset', 'engine0', check=False)
    s.run()
    valid(s.text)
    assert s.text == want, 'the same draws under the same masks'


def test_what_cannot_be_done_is_refused_before_it_begins(app):
    bad = [
        ({'grammar': 'root ::= root "x" | "y"'}, 'grammar', 'left recursion'),
        ({'grammar': 'root ::= (x'}, 'grammar', 'line 1, column'),
        ({'grammar': 'root ::= y'}, 'grammar', 'not defined'),
        ({'json_schema': {'type': 'object', 'properties': {'a': {'unevaluatedProperties': False}}}}, 'json_schema', '/properties/a'),
        ({'json_schema': {'type': 'string', 'pattern': '(a)\\1'}}, 'json_schema', 'back references'),
        ({'json_schema': {'type': 'array', 'minItems': 3, 'maxItems': 2}}, 'json_schema', 'no text at all'),
        ({'json_schema': {'type': 'strnig'}}, 'json_schema', 'unknown type'),
        ({'response_format': {'type': 'yaml'}}, 'response_format', 'yaml'),
        ({'grammar': 'root ::= "x"', 'json_schema': {}}, 'json_schema', 'grammar'),
    ]
    for path in ('/completion', '/v1/completions', '/v1/chat/completions'):
        for fields, param, words in bad:
            r = post(app, path, prompt='x', messages=[{'role': 'user', 'content': 'x'}], stream=True, max_tokens=5, **fields)
            e = r.json()['error']
            assert r.status == 400 and e['type'] == 'invalid_request_error' and e['param'] == param, (fields, e)
            assert words in e['message'], (fields, e)


def test_a_grammar_that_bans_leave_nothing_of_ends_with_an_error(app):
    """Never free text: when no token is left the client is told."""
    r = post(app, '/completion', prompt='x', grammar='root ::= "a"', logit_bias=[[i, False] for i in range(50)], n_predict=5,
             temperature=0)
    assert r.status in (200, 400)
    if r.status == 200:
        assert r.json()['content'] == 'a'
    r = post(app, '/completion', prompt='x', grammar='root ::= [\\U00010000] [\\U00010001]', n_predict=50, temperature=0)
    assert r.status == 400 or r.json()['content'] == '\U00010000\U00010001', r.json()
