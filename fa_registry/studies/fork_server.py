"""Setting of the fork server of `local_process`: at its end, Python does not search all imported modules for cycles.

Only the server imports this module. Its search would take two seconds, which is as long as the import of MLflow.
"""

import atexit
import gc

atexit.register(gc.freeze)
