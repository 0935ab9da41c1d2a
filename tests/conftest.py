"""Fixtures of all suites."""
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

from harness.appliance import Appliance  # noqa: E402


@pytest.fixture
def make():
    """make(**options) starts an appliance that ends with the test; its log is shown when the test fails."""
    made = []

    def start(wait=True, **kw):
        a = Appliance(**kw)
        made.append(a)
        return a.start(wait=wait)

    yield start
    for a in made:
        if os.path.exists(a.log_path):
            sys.stderr.write('---- log of %s\n%s\n' % (a.root, a.log_text()[-5000:]))
        a.destroy()
