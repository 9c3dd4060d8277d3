"""Settings of the fork server of `local_process`, which imports this module first.

During imports, a fifth of the time would be spent on the search for cycles. Without `gc.freeze`, Python would search all imported
modules before the server ends. A job enables the search again.
"""

import atexit
import gc

gc.disable()
atexit.register(gc.freeze)
