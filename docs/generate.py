"""Fills the tables of man pages from the tables of the source: generate.py wire|config DEF TEMPLATE OUT."""
import re
import sys


def strip_comments(text):
    return re.sub(r'/\*.*?\*/', '', text, flags=re.S)


def escape(s):
    s = s.replace('\\', '\\e').replace('-', '\\-')
    return '\\&' + s if s.startswith(('.', "'")) else s


def rows(text, name):
    """The argument texts of each NAME(...) row, split at commas outside quotes; adjacent strings are joined."""
    out = []
    for m in re.finditer(r'^%s\(' % name, text, re.M):
        i, depth, quoted, args, cur = m.end(), 1, False, [], ''
        while depth:
            c = text[i]
            if c == '"' and text[i - 1] != '\\':
                quoted = not quoted
            if not quoted and c in '()':
                depth += 1 if c == '(' else -1
            if depth and c == ',' and not quoted and depth == 1:
                args.append(cur)
                cur = ''
            elif depth:
                cur += c
            i += 1
        args.append(cur)
        out.append((m.start(), [unquote(a) for a in args]))
    return out


def unquote(a):
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"', a)
    return ''.join(parts) if parts else a.strip()


def wire(text):
    items = sorted([(at, 'FRAME', r) for at, r in rows(text, 'FRAME')] + [(at, 'KEY', r) for at, r in rows(text, 'KEY')])
    out, keys = ['.Bl -tag -width Ds'], []

    def flush():
        if keys:
            out.append(escape(', '.join(keys) + '.'))
        elif len(out) > 1:
            out.append('No keys of its own.')
        keys.clear()

    for _, what, r in items:
        if what == 'FRAME':
            if len(out) > 1:
                flush()
            out.append('.It Sy %s Pq %s ; %s' % (r[0], r[1], escape(r[2])))
        else:
            keys.append('%s %s %s%s' % (r[1], r[2].lower().rstrip('_'), r[3], '*' if r[4] == '1' else ''))
    flush()
    out.append('.El')
    return '\n'.join(out)


def config(text):
    out, section = [], None
    for _, r in rows(text, 'CFG'):
        name, kind, dflt, lo, hi, reload, doc = r[1:8]
        sec = name.split('.')[0]
        if sec != section:
            if section:
                out.append('.El')
            out += ['.Ss Section [%s]' % sec, '.Bl -tag -width Ds']
            section = sec
        out.append('.It Va %s' % name.split('.', 1)[1])
        out.append(re.sub(r'(?<=[.?!]) +(?=[A-Z*])', '\n', escape(doc)))
        shown = escape(dflt) if dflt else 'empty'
        limits = '; %s to %s' % (lo, hi) if kind == 'VT_T_INT' and hi != '0' else ''
        when = {'VT_R_LIVE': 'at once', 'VT_R_DRAIN': 'with the next engine', 'VT_R_RESTART': 'with the next start'}[reload]
        out.append('Default: %s%s.' % (shown, limits))
        out.append('Takes effect %s.' % when)
    out.append('.El')
    return '\n'.join(out)


def main():
    what, table, template, target = sys.argv[1:5]
    with open(table) as f:
        text = strip_comments(f.read())
    with open(template) as f:
        page = f.read()
    page = page.replace('@FRAMES@', wire(text)) if what == 'wire' else page.replace('@KEYS@', config(text))
    with open(target, 'w') as f:
        f.write(page)


main()
