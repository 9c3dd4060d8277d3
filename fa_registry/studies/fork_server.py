"""Setting of `local_process`'s fork server: at its end, Python does not search the modules for cycles.

Only the server imports this module. Its search would take two seconds, which is as long as the import of MLflow.
"""

import atexit
import gc

atexit.register(gc.freeze)
