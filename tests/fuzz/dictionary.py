"""Writes libFuzzer dictionaries into a folder: dictionary.py FOLDER. The one of frames comes from the frame table."""
import os
import re
import sys

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')


def quote(b):
    return '"%s"' % ''.join(chr(c) if 32 < c < 127 and c not in b'"\\' else '\\x%02x' % c for c in b)


def frames():
    with open(os.path.join(TOP, 'common', 'frames.def')) as f:
        types = re.findall(r'^FRAME\(\w+, 0x([0-9a-f]+)', f.read(), re.M)
    words = [bytes([0x95, 1, int(t, 16)]) for t in types]
    # heads of containers, strings and numbers in every width, nil, float, extension, the never-used byte
    words += [bytes.fromhex(h) for h in ('80', '81', 'de0001', 'df00000001', '90', 'dc0001', 'dd00000001', 'a1', 'd901',
                                         'da0001', 'db00000001', 'c401', 'c50001', 'c600000001', 'cc80', 'cd0100',
                                         'ce00010000', 'cf0000000100000000', 'd080', 'd18000', 'd280000000', 'c0', 'c1',
                                         'cb3ff0000000000000', 'ca3f800000', 'd401', 'c2', 'c3', 'dd04000000')]
    return words


WORDS = {
    'request': [b'Content-Length: 5\r\n', b'Transfer-Encoding: chunked\r\n', b' HTTP/1.1\r\n', b'GET /', b'\r\n\r\n', b'{', b'}', b'[', b']', b'"messages"', b'"role"', b'"user"', b'"content"', b'"stream"', b'true', b'null', b'1e308',
             b'\\ud800', b'"tools"', b'"temperature"', b'"stop"', b'"logit_bias"', b'"max_tokens"'],
    'jinja': [b'{%', b'%}', b'{{', b'}}', b'{#', b'#}', b'{%-', b'-%}', b'for', b'in', b'if', b'else', b'elif', b'endfor', b'endif',
              b'set', b'macro', b'endmacro', b'messages', b'loop.index0', b'|', b'tojson', b'trim', b'is', b'not', b'defined',
              b'namespace', b'[::-1]', b'raise_exception', b'~', b'call', b'filter', b'recursive', b'range(9)'],
    'gguf': [b'GGUF', b'\x03\0\0\0', b'\x02\0\0\0', b'general.architecture', b'general.alignment', b'qwen3', b'qwen35',
             b'tokenizer.ggml.tokens', b'split.count', b'\xff\xff\xff\xff\xff\xff\xff\xff', b'\x08\0\0\0', b'\x09\0\0\0'],
    'grammar': [b'root ::= ', b'::=', b'|', b'{2,3}', b'[^a-c]', b'\\u00e9', b'"', b'( ', b' )*', b'[0-9]+', b'.'],
    'schema': [b'{"type":"object"', b'"type":', b'"properties":{', b'"$ref":"#/$defs/a"', b'"$defs":{', b'"anyOf":[', b'"allOf":[',
               b'"oneOf":[', b'"pattern":"^', b'"required":[', b'"additionalProperties":', b'"prefixItems":[', b'"items":', b'"enum":[',
               b'"const":', b'"format":"', b'"minimum":', b'"exclusiveMaximum":', b'"multipleOf":', b'"minLength":', b'"maxItems":',
               b'"uniqueItems":true', b'"not":{}', b'"patternProperties":{', b'"if":', b'"then":', b'"null"', b'"integer"', b'"string"'],
    'stream': [b'<arg_key>', b'</arg_key>', b'<arg_value>', b'</arg_value>', '<｜tool▁call▁begin｜>'.encode(), '<｜tool▁sep｜>'.encode(),
               '<｜tool▁call▁end｜>'.encode(), b'<|channel|>', b'<|message|>', b'<|start|>', b'<|end|>', b' to=functions.', b'```json\n',
               b'<tool_call>', b'</tool_call>', b'<function=', b'</function>', b'<parameter=', b'</parameter>', b'[TOOL_CALLS]', b'[ARGS]',
               b'[CALL_ID]', b'<|tool_call>', b'<tool_call|>', b'<|"|>', b'<|tool_call|>', b'<|/tool_call|>', b'<start_function_call>',
               b'<end_function_call>', b'<escape>', b'<|python_tag|>', b'call:', b'{"name":"f","arguments":{', b'"parameters":', b'<think>',
               b'</think>', b'[THINK]', b'[/THINK]'],
    'config': [b'[engine]', b'slots', b'=', b'#', b'[http]', b'listen', b'"'],
}


def main():
    for name, words in [('frame', frames()), ('vault', frames())] + list(WORDS.items()):
        text = ''.join(quote(w) + '\n' for w in words)
        with open(os.path.join(sys.argv[1], 'fuzz_%s.dict' % name), 'w') as f:
            f.write(text)


main()
