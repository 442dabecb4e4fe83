"""A plugin of pytest for joblib's own tests: they run on each backend that is registered."""

import vgrads

vgrads.register_joblib()
