"""Setting of the fork server of `local_process`, which is the only importer of this module.

Before a process ends, Python searches all its modules for cycles. For the server this would take two seconds.
"""

import atexit
import gc

atexit.register(gc.freeze)
