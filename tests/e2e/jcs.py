"""RFC 8785 (JSON Canonicalization Scheme) and the pin of a tool definition, apart from the gateway's own code.

An integer keeps its own digits, also beyond 2^53, as the gateway documents for pins.
"""

import decimal
import hashlib
import json

ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def pin(tool):
    """SHA-256, in hex, of the canonical form of a tool object without `_meta`."""
    bare = {name: value for name, value in tool.items() if name != "_meta"}
    return hashlib.sha256(canonical(bare).encode()).hexdigest()


def canonical(value):
    """The canonical form of a decoded JSON value."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return string(value)
        case int():
            return str(value)
        case float():
            return number(value)
        case list():
            return "[" + ",".join(map(canonical, value)) + "]"
        case dict():
            names = sorted(value, key=lambda name: name.encode("utf-16-be"))
            return "{" + ",".join(f"{string(name)}:{canonical(value[name])}" for name in names) + "}"
    raise TypeError(f"not JSON: {value!r}")


def string(text):
    """A string with the fewest escapes."""

    def escape(c):
        return ESCAPES.get(c) or (f"\\u{ord(c):04x}" if c < " " else c)

    return '"' + "".join(map(escape, text)) + '"'


def number(value):
    """A double as ECMAScript's Number::toString prints it: the shortest digits, then where the point goes."""
    if value == 0:
        return "0"
    negative, digits, exponent = decimal.Decimal(repr(value)).normalize().as_tuple()
    sign, digits, point = "-" * negative, "".join(map(str, digits)), len(digits) + exponent
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    mark = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    return f"{sign}{mark}e{'+' if point > 0 else '-'}{abs(point - 1)}"


KNOWN = [  # RFC 8785, sections 3.2.2 and 3.2.3 and appendix B
    (
        '{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"literals":[null,true,false]}',
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27]}',
    ),
    (
        '{"\\u20ac":1,"\\r":2,"\\ufb33":3,"1":4,"\\ud83d\\ude00":5,"\\u0080":6,"\\u00f6":7}',
        '{"\\r":2,"1":4,"\u0080":6,"\u00f6":7,"\u20ac":1,"\U0001f600":5,"\ufb33":3}',
    ),
    ('"\\u20ac$\\u000F\\u000aA\'\\u0042\\u0022\\u005c\\\\\\"\\/"', '"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"'),
    (
        "[-0.0,5e-324,-5e-324,1.7976931348623157e308,9007199254740992.0,295147905179352830000.0]",
        "[0,5e-324,-5e-324,1.7976931348623157e+308,9007199254740992,295147905179352830000]",
    ),
    (
        "[9.999999999999997e22,1e23,999999999999999700000.0,1e21,0.000001,1e-7,333333333.3333332,1424953923781206.2]",
        "[9.999999999999997e+22,1e+23,999999999999999700000,1e+21,0.000001,1e-7,333333333.3333332,1424953923781206.2]",
    ),
    ("[10.0,100.5,1.0,0.1,123456.789,9007199254740993]", "[10,100.5,1,0.1,123456.789,9007199254740993]"),
]


def faults():
    """What this module gets wrong of the known answers: empty, when it is right."""
    return [f"{source} gives {got}" for source, want in KNOWN if (got := canonical(json.loads(source))) != want]
