"""What schemathesis cannot know from the API's description: which URLs and times are good ones."""

import schemathesis
from hypothesis import strategies as st

# RFC 2606: names under .example do not resolve, so nothing is ever sent anywhere.
_label = st.from_regex(r"[a-z]([a-z0-9]{0,20})", fullmatch=True)
_path = st.lists(st.from_regex(r"[A-Za-z0-9._~%&=+-]{0,12}", fullmatch=True), max_size=4).map("/".join)
_port = st.one_of(st.just(""), st.integers(1, 65535).map(lambda port: f":{port}"))

schemathesis.openapi.format(
    "uri", st.builds(lambda host, port, path: f"https://{host}.example{port}/{path}", _label, _port, _path)
)

# From 1970 on; the past, where a recovery begins.
_zone = st.sampled_from(["Z", "+00:00", "+05:30", "-08:00"])
schemathesis.openapi.format(
    "date-time",
    st.builds(
        lambda day, zone: f"{day:%Y-%m-%dT%H:%M:%S}{zone}",
        st.datetimes(min_value=__import__("datetime").datetime(1971, 1, 1), max_value=__import__("datetime").datetime(2026, 1, 1)),
        _zone,
    ),
)
