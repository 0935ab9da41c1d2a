"""The template engine against the public Jinja implementation, set up as chat templates expect it."""
import ast
import datetime
import functools
import glob
import hashlib
import json
import os
import subprocess

import jinja2
import pytest
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from harness.appliance import MODEL, program

HERE = os.path.dirname(__file__)
NOW = 1700000000


class Generation(Extension):
    """{% generation %}: marks the assistant's part for training masks; the text is its body."""
    tags = {'generation'}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(['name:endgeneration'], drop_needle=True)
        return nodes.CallBlock(self.call_method('_body'), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    e = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    e.filters['tojson'] = tojson
    e.globals['raise_exception'] = raise_exception
    e.globals['strftime_now'] = lambda f: datetime.datetime.fromtimestamp(NOW).strftime(f)
    return e


ENV = environment()
compiled = functools.lru_cache(maxsize=2048)(ENV.from_string)


def reference(template, variables):
    """Text, or None when it fails."""
    try:
        return compiled(template).render(**variables)
    except Exception:
        return None


def ours(cases):
    lines = ''.join(json.dumps({'template': t, 'vars': v, 'now': NOW}) + '\n' for t, v in cases)
    p = subprocess.run([program('jinja_cli')], input=lines, capture_output=True, text=True, timeout=120)
    assert p.returncode == 0, p.stderr
    answers = [json.loads(ln) for ln in p.stdout.split('\n') if ln]
    assert len(answers) == len(cases)
    return answers


def compare(cases):
    """Every case renders to the same text, or fails on both sides. Returns how many rendered."""
    wrong, rendered = [], 0
    for (t, v), a in zip(cases, ours(cases)):
        want = reference(t, v)
        rendered += want is not None
        if a.get('out') != want:
            wrong.append('%r\n  want %r\n  got  %r' % (t[:200], want, a.get('out', a.get('error'))))
    assert not wrong, '%d of %d differ\n%s' % (len(wrong), len(cases), '\n'.join(wrong[:5]))
    return rendered


VARS = {
    'a': 1, 'b': 2.5, 's': 'Hello World', 'l': [3, 1, 2], 'd': {'x': 1, 'y': [1, 2], 'items': 5}, 'n': None, 't': True,
    'msgs': [{'role': 'user', 'content': 'hi'}, {'role': 'assistant', 'content': 'yo'}, {'role': 'user', 'content': ' x '}],
    'u': '\u00fcn\u00ef \u03a9\u00df', 'e': '', 'html': '<a href="x">\'&</a>', 'nested': {'a': {'b': [{'c': 7}]}},
    'tree': [{'n': 1, 'c': [{'n': 2}, {'n': 3, 'c': [{'n': 4}]}]}, {'n': 5}],
}


def lines(name):
    with open(os.path.join(HERE, name), encoding='utf-8') as f:
        return f.read()


def test_expressions():
    texts = [ast.literal_eval('"""' + ln.replace('"', '\\"') + '"""') for ln in lines('expressions.txt').splitlines()]
    assert len(texts) >= 390
    assert compare([('{{ %s }}' % t, VARS) for t in texts]) >= 340


def test_statements():
    texts = lines('statements.txt')[:-1].split('\n===\n')
    assert len(texts) >= 80
    assert compare([(t, VARS) for t in texts]) >= 60


def test_ends_of_templates():
    heads = ('a', '{{ a }}', '{% if t %}x{% endif %}', '{# c #}', '{% raw %}r{% endraw %}', ' {%- if t %}x{% endif -%}')
    tails = ('', '\n', '\n\n', '\r\n', '\r', ' \n', '\n b', '\t\n{% if t %}', '\n  {# c #}\n z', '{{ a }}\n\n')
    compare([(h + t, VARS) for h in heads for t in tails] + [('  ' + h + t, VARS) for h in heads for t in tails])


def user(c):
    return {'role': 'user', 'content': c}


def assistant(c, **kw):
    return dict({'role': 'assistant', 'content': c}, **kw)


def system(c):
    return {'role': 'system', 'content': c}


def call(name, arguments, ident='abcdefghi'):
    return {'id': ident, 'type': 'function', 'function': {'name': name, 'arguments': arguments}}


def tool(c, ident='abcdefghi'):
    return {'role': 'tool', 'content': c, 'tool_call_id': ident}


TOOLS = [
    {'type': 'function', 'function': {
        'name': 'get_weather', 'description': 'Say "it" <now> & \u00fcn\u00ef',
        'parameters': {'type': 'object', 'properties': {'city': {'type': 'string', 'enum': ['a', 'b'], 'default': 'a'},
                                                        'n': {'type': 'number', 'default': 1.5}}, 'required': ['city']}}},
    {'type': 'function', 'function': {
        'name': 'search', 'description': 'd',
        'parameters': {'type': 'object', 'required': [], 'properties': {
            'q': {'type': ['string', 'null'], 'description': 'x\ny'},
            'o': {'type': 'object', 'required': ['a'],
                  'properties': {'a': {'type': 'array', 'items': {'type': 'integer'}}, 'e': {'enum': ['p'], 'type': 'string'}}},
            'u': {'oneOf': [{'type': 'string'}, {'type': 'number'}]}}},
        'return': {'type': 'string'}}},
    {'type': 'function', 'function': {'name': 'nothing'}},
]
TALKS = [
    [user('hi')],
    [system('be brief'), user('hi')],
    [user('a'), assistant('b'), user('c')],
    [system(' s '), user(' a '), assistant('<think>\nhm\n</think>\n\nb'), user('c\n')],
    [system('s'), user('q'), assistant('x', reasoning_content='why'), user('z')],
    [user('q'), assistant('', tool_calls=[call('get_weather', {'city': 'X', 'n': [1, 2.5, None, True]})]), tool('sunny'), user('ok')],
    [user('q'), assistant(None, tool_calls=[call('f', '{"a":1}'), call('g', '{}', 'bcdefghij')]), tool('1'), tool('2', 'bcdefghij')],
    [user('q'), assistant('words', tool_calls=[call('f', {'o': {'k': 'v'}})]), tool('r'), assistant('done')],
    [assistant('first'), user('x')],
    [user('x'), user('y')],
    [system('a'), system('b'), user('<|im_end|> \u2028 \U0001f600')],
    [user([{'type': 'text', 'text': 'part'}, {'type': 'image'}])],
    [user('a long line of words to cut'), assistant(''), user('\t\n')],
    [system('s'), user('weather?'), assistant('', reasoning_content='I must look.', tool_calls=[call('get_weather', {'city': 'Oslo'})]),
     tool('{"t": 3}'), assistant('3 degrees.', reasoning_content='Tell it.'), user('and tomorrow?'),
     assistant('', tool_calls=[call('get_weather', {'city': 'Oslo', 'n': 1}, 'cdefghijk')]), tool('4', 'cdefghijk')],
    [user('q'), dict(assistant('', tool_calls=[call('search', {'q': None, 'o': {'a': [1], 'e': 'p'}})]), thinking='hm'), tool('found')],
    [],
]
TEMPLATES = sorted(glob.glob(os.path.join(HERE, 'templates', '*.jinja')))
PUBLIC = sorted(glob.glob(os.path.join(HERE, 'templates', 'public', '*.jinja')))
parity = {}  # file -> (cases, texts that both made, refusals that both made)


def model_template():
    with open(MODEL, 'rb') as f:
        head = f.read(4 << 20)
    at = head.index(b'tokenizer.chat_template') + len('tokenizer.chat_template') + 4
    n = int.from_bytes(head[at:at + 8], 'little')
    return head[at + 8:at + 8 + n].decode()


def talks(template):
    out = []
    for messages in TALKS:
        for tools in (None, TOOLS[:1], TOOLS):
            for kw in ({}, {'enable_thinking': False}, {'enable_thinking': True, 'date_string': '2 Feb'}):
                v = dict(messages=messages, add_generation_prompt=not kw or bool(tools), bos_token='<s>', eos_token='</s>', **kw)
                if tools:
                    v['tools'] = tools
                out.append((template, v))
    return out


def test_there_are_templates():
    assert len(TEMPLATES) >= 12


def test_public_templates_are_what_their_table_says():
    """Each has its model, licence, source and hash; none lies there without."""
    rows = [ln.split('\t') for ln in lines('templates/public/SOURCES.tsv').splitlines()[1:]]
    assert sorted(r[0] for r in rows) == [os.path.basename(p) for p in PUBLIC] and len(rows) >= 25
    for name, model, licence, source, digest in rows:
        assert model and source and licence in ('Apache-2.0', 'MIT', 'Llama 3.1 Community License'), name
        with open(os.path.join(HERE, 'templates', 'public', name), 'rb') as f:
            assert hashlib.sha256(f.read()).hexdigest() == digest, name


@pytest.mark.parametrize('path', TEMPLATES + PUBLIC, ids=os.path.basename)
def test_template(path):
    with open(path, encoding='utf-8', newline='') as f:
        cases = talks(f.read())
    rendered = compare(cases)
    parity[os.path.basename(path)] = (len(cases), rendered, len(cases) - rendered)
    assert rendered >= 20


def test_parity_counts(capsys):
    """Says how much the templates above compared."""
    if not parity:
        pytest.skip('no template was compared in this run')
    with capsys.disabled():
        print('\ntemplates %d, renderings %d: equal texts %d, refused by both %d, different 0' %
              ((len(parity),) + tuple(sum(c) for c in zip(*parity.values()))))


def test_template_of_the_embedded_model():
    assert compare(talks(model_template())) >= 80


def test_marks_cover_what_came_from_the_client():
    """The bytes marked as input are those of the messages, in order; nothing of the template is."""
    text = model_template()
    messages = [system('SYS'), user('<|im_end|>USR'), assistant('ASS'), user('END')]
    line = json.dumps({'template': text, 'vars': {'messages': messages, 'add_generation_prompt': True}})
    p = subprocess.run([program('jinja_cli')], input=line + '\n', capture_output=True, text=True, check=True)
    a = json.loads(p.stdout)
    out, at, marked, rest = a['out'].encode(), 0, b'', b''
    for end, is_input in a['spans']:
        if is_input:
            marked += out[at:end]
        else:
            rest += out[at:end]
        at = end
    assert at == len(out)
    assert marked == b'SYSuser<|im_end|>USRASSuserEND'
    assert rest.count(b'<|im_end|>') == 4
