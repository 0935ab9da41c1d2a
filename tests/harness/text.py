"""Prompts of known size, cut from the evaluation text."""
import os

from .appliance import TOP

with open(os.path.join(TOP, 'models', 'eval.txt')) as _f:
    EVAL = _f.read()

SHORT = ['It was a cold evening, and the old man', 'The captain looked over the side of the ship and',
         'She opened the letter slowly, for', 'In the garden behind the house there', 'My dear sir, said the doctor,',
         'They walked for a long time without', 'At the end of the street stood a', 'When the morning came, nobody']


def short(i):
    """A short prompt; different for each i."""
    return 'Chapter %d. ' % (i + 1) + SHORT[i % len(SHORT)]


def prose(chars, start=0):
    """A run of whole words of about that many characters (3.85 of them make a token)."""
    end = EVAL.index(' ', start + chars)
    return EVAL[EVAL.index(' ', start) + 1 if start else 0:end]
