"""Writes build_id.h: gen-build-id.py OUT ID."""
import sys
open(sys.argv[1], 'w').write('#define VT_BUILD_ID "%s"\n' % sys.argv[2])
