"""What schemathesis cannot know from the API's description: which URLs, times, names and descriptions are good ones."""

from datetime import datetime

import schemathesis
from hypothesis import strategies as st

# RFC 2606: names under .example do not resolve, so nothing is ever sent anywhere.
_label = st.from_regex(r"[a-z][a-z0-9]{0,20}", fullmatch=True)
_port = st.one_of(st.just(""), st.integers(1, 65535).map(":{}".format))
_path = st.lists(st.from_regex(r"[A-Za-z0-9._~=+-]{0,12}", fullmatch=True), max_size=4).map("/".join)
schemathesis.openapi.format("uri", st.builds("https://{}.example{}/{}".format, _label, _port, _path))

# The past, where a recovery begins, and no earlier than the service knows time.
_moment = st.datetimes(datetime(1970, 1, 2), datetime(2026, 1, 1)).map(lambda moment: moment.replace(microsecond=0).isoformat())
schemathesis.openapi.format("date-time", st.builds("{}{}".format, _moment, st.sampled_from(["Z", "+05:30", "-08:00"])))


# The patterns of names and descriptions end at U+FFFF. Of the characters beyond, some are refused.
_refused = [("\U0001bca0", "\U0001bca3"), ("\U0001d173", "\U0001d17a"), ("\U000e0000", "\U000e0fff")]


@schemathesis.hook
def filter_body(context, body):
    texts = [body.get("name"), body.get("description")] if isinstance(body, dict) else []
    characters = "".join(text for text in texts if isinstance(text, str))
    return not any(first <= char <= last for char in characters for first, last in _refused)
