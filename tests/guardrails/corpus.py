"""The corpora: documents with labelled spans, made from a seed. Each belongs to one part, `tuning` or `held-out`.

The parts have other seeds, other sentences round what is labelled, and other READMEs, so that a rule that was fitted to one part shows
on the other.
"""

import base64
import dataclasses
import hashlib
import json
import pathlib
import random
import uuid

import sources

SEEDS = {"tuning": 20260801, "held-out": 77003111}
EACH = 30  # secrets of each expression
LEAF_BYTES = 4096  # benign text is cut into leaves of about so much

# Sentences, files and answers that a secret stands in; `@` is its place. Even ones are for tuning, odd ones held out.
CARRIERS = [
    "The key is @ and it works.", "please use @, thanks", "export API_TOKEN=@\n", "TOKEN: @\nMODE: fast\n",
    '{{"token": "@", "ttl": 3600}}', "{{'auth': '@'}}", "curl -H 'X-Api-Key: @' https://api.example.com/v1/items",
    "$ deploy --token=@ --region eu", "2026-08-01T10:00:00Z INFO login with (@) ok", "[debug] secret <@> loaded",
    "client = Client(key=\"@\")  # production\n", "const key = `@`;\n", "- `@`: revoke it\n", "| @ | ann | active |\n",
    "https://example.com/cb?state=1&t=@", "@",
]
PLACEHOLDERS = [
    "sk_live_" + "x" * 24, "ghp_" + "x" * 36, "glpat-" + "x" * 20, "AKIA" + "X" * 16, "xoxb-your-token-here", "Bearer <token>", "Bearer YOUR_TOKEN_HERE",
    "Bearer $TOKEN", "Bearer ${{ACCESS_TOKEN}}", "postgres://user:${{PASSWORD}}@db/app", "postgres://user:<password>@db/app", "https://user:****@example.com/",
    "https://{{user}}:{{pass}}@example.com", "redis://localhost:6379/0", "mongodb://127.0.0.1:27017/test", "npm_config_cache", "hf_hub_download",
    "sk-learn and sk-image", "AIza...", "eyJ...", "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----", "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAB",
    "SG.xxxx.xxxx", "AccountKey=<key>;EndpointSuffix=core.windows.net", "secret_name: api_key", "token=None", "Basic authentication", "sig=...",
    "https://hooks.slack.com/services/T000/B000/XXXX", "arn:aws:iam::123456789012:user/ann", "https://api.example.com/?api_key=YOUR_API_KEY",
]


@dataclasses.dataclass
class Document:
    """A JSON text and what is in it: spans (start, end, group) in bytes of the one string that has them."""

    family: str
    group: str
    value: object
    spans: list
    text: str = ""


def of_part(part, npm):
    """All documents of a part, by family."""
    rng = random.Random(SEEDS[part])
    parity = list(SEEDS).index(part)
    documents = list(secrets(rng, parity, npm)) + list(no_secrets(rng, parity))
    documents += list(personal(rng, parity)) + list(no_personal(rng, parity))
    documents += list(injections(rng, parity)) + list(benign(parity))
    return documents


def placed(carrier, text):
    """The carrier with the text at its place, and the text's span in bytes."""
    before, after = carrier.replace("{{", "{").replace("}}", "}").split("@", 1)
    start = len(before.encode())
    return before + text + after, (start, start + len(text.encode()))


def document(family, group, carrier, text, kind):
    whole, span = placed(carrier, text)
    return Document(family, group, {"text": whole}, [(*span, kind)], whole)


def secrets(rng, parity, npm):
    carriers = CARRIERS[parity::2]
    for kind, source, pattern, flags in sources.of_detect_secrets() + sources.of_secretlint(npm):
        for _ in range(EACH):
            text = sources.generate(rng, pattern, flags)
            yield document("secrets", source, rng.choice(carriers), text, kind)
    for _ in range(3 * EACH):
        yield document("secrets", "made here", rng.choice(carriers), jwt(rng), "jwt")
        yield document("secrets", "made here", rng.choice(carriers), private_key(rng), "private-key")


def jwt(rng):
    """A token of RFC 7519."""
    encode = lambda data: base64.urlsafe_b64encode(data).rstrip(b"=").decode()
    header = {"alg": rng.choice(["HS256", "RS256", "ES256", "EdDSA"]), "typ": "JWT"}
    claims = {"sub": str(rng.randrange(10**9)), "iat": 1_780_000_000 + rng.randrange(10**6)}
    parts = [json.dumps(header, separators=(",", ":")).encode(), json.dumps(claims, separators=(",", ":")).encode(), rng.randbytes(32)]
    return ".".join(map(encode, parts))


def private_key(rng):
    """A block in PEM (RFC 7468) of the length that keys have."""
    name = rng.choice(["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY", "ENCRYPTED PRIVATE KEY"])
    body = base64.b64encode(b"\x30\x82" + rng.randbytes(rng.choice([118, 300, 1190]))).decode()
    lines = [body[at:at + 64] for at in range(0, len(body), 64)]
    return "\n".join([f"-----BEGIN {name}-----", *lines, f"-----END {name}-----"])


def no_secrets(rng, parity):
    """What looks like secrets and is none."""
    carriers = CARRIERS[parity::2]
    digits = lambda count: "".join(rng.choices("0123456789", k=count))
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    makers = [
        lambda: str(uuid.UUID(int=rng.getrandbits(128))), lambda: rng.randbytes(20).hex(), lambda: rng.randbytes(32).hex(), lambda: rng.randbytes(16).hex(),
        lambda: "sha512-" + base64.b64encode(rng.randbytes(64)).decode(), lambda: base64.b64encode(rng.randbytes(90)).decode(),
        lambda: "data:image/png;base64," + base64.b64encode(rng.randbytes(300)).decode(), lambda: f"{digits(4)}-{digits(4)}-{digits(6)}",
        lambda: "".join(rng.choices(letters, k=rng.randrange(16, 64))), lambda: ":".join(rng.randbytes(1).hex() for _ in range(6)),
        lambda: f"pk_live_{''.join(rng.choices(letters, k=24))}", lambda: f"req_{''.join(rng.choices(letters, k=22))}",
        lambda: f"cus_{''.join(rng.choices(letters, k=14))}", lambda: f"AIDA{digits(3)}", lambda: f"task_live_{digits(2)}",
        lambda: f"https://cdn.example.com/{rng.randbytes(20).hex()}/app.min.js?v={digits(8)}", lambda: f"Bearer {rng.choice(['of', 'bonds', 'token', 'scheme'])}",
        lambda: f"s3://bucket/{rng.randbytes(8).hex()}.gz", lambda: f"kubernetes-{rng.randbytes(5).hex()}-{rng.randbytes(3).hex()[:5]}",
        lambda: f"git@github.com:org/{rng.randbytes(4).hex()}.git", lambda: f"ETag: \"{rng.randbytes(16).hex()}\"",
    ]
    for maker in makers:
        for _ in range(2 * EACH):
            yield Document("secrets", "no secret", {"text": placed(rng.choice(carriers), maker())[0]}, [])
    for text in PLACEHOLDERS[parity::2]:
        for carrier in carriers:
            yield Document("secrets", "placeholder", {"text": placed(carrier, text.replace("{{", "{").replace("}}", "}"))[0]}, [])


def fakers(rng, provider, method):
    """A Faker for each locale that has that provider of its own."""
    from faker import Faker
    from faker.config import AVAILABLE_LOCALES

    locales = []
    for locale in sorted(AVAILABLE_LOCALES):
        module = pathlib.Path(sources.SITE, "faker/providers", provider, locale, "__init__.py")
        if module.exists():
            locales.append(locale)
    made = []
    for locale in locales or ["en_US"]:
        fake = Faker(locale)
        fake.seed_instance(rng.getrandbits(32))
        if hasattr(fake, method):
            made.append((locale, getattr(fake, method)))
    return made


def card_number(fake, card):
    """One that Faker makes and an issuer might: ISO/IEC 7812 has none that starts with 0."""
    while (number := fake.credit_card_number(card)).startswith("0"):
        pass
    return number


def personal(rng, parity):
    from faker import Faker
    from stdnum import iban

    fake = Faker("en_US")
    fake.seed_instance(rng.getrandbits(32))
    sentences = {kind: [line for line in sources.presidio_templates() if "{{%s}}" % kind in line][parity::2] for kind in
                 ("credit_card_number", "iban", "email", "phone_number", "ssn")}
    plain = ["@", "<@>", "({0})".replace("{0}", "@"), "id=@;", "Contact: @.", "now @, later"][parity::2]

    def carry(kind, place, text, group):
        template = rng.choice(sentences[place] + plain) if sentences[place] else rng.choice(plain)
        spot = "{{%s}}" % place
        if spot in template:
            before, _, after = template.partition(spot)
            template = fill(before, fake) .replace("@", "(at)") + "@" + fill(after, fake).replace("@", "(at)")
        return document("personal_data", group, template.replace("{", "{{").replace("}", "}}") if "{" in template else template, text, kind)

    cards = ["amex", "diners", "discover", "jcb15", "jcb16", "maestro", "mastercard", "visa13", "visa16", "visa19"]
    for card in cards:
        for _ in range(3 * EACH):
            number = card_number(fake, card)
            written = rng.choice([number, *([grouped(number, " "), grouped(number, "-")] if len(number) in (15, 16, 19) else [])])
            yield carry("card", "credit_card_number", written, "faker " + card)
        for _ in range(EACH // 3):
            number = card_number(fake, card)
            yield Document("personal_data", "faker " + card, {"pan": int(number)}, [(0, len(number), "card")])
    for locale, make in fakers(rng, "bank", "iban"):
        for _ in range(EACH):
            number = make()
            if not iban.is_valid(number, check_country=False):
                continue  # of a country that has none, or of another length
            written = rng.choice([number, " ".join(number[at:at + 4] for at in range(0, len(number), 4)), number.lower()])
            yield carry("iban", "iban", written, "faker " + locale)
    for locale, make in fakers(rng, "internet", "email"):
        for _ in range(EACH // 2):
            yield carry("email", "email", make(), "faker " + locale)
    for _ in range(10 * EACH):
        yield carry("us_ssn", "ssn", fake.ssn(), "faker en_US")
    for locale, make in fakers(rng, "phone_number", "phone_number"):
        for _ in range(EACH // 3):
            number = make()
            kind = "phone, with +" if number.startswith("+") else "phone, North American" if locale in ("en_US", "en_CA") else "phone, national"
            yield carry(kind, "phone_number", number, "faker " + locale)


def fill(template, fake):
    """A sentence with its other places filled with words."""
    import re

    return re.sub(r"\{\{(\w+)\}\}", lambda match: fake.city() if "name" not in match[1] else fake.first_name(), template)


def grouped(number, separator):
    """As printed on the card."""
    sizes = [4, 6, 5] if len(number) == 15 else [4, 4, 4, 4, 3]
    groups, at = [], 0
    for size in sizes:
        groups.append(number[at:at + size])
        at += size
    return separator.join(group for group in groups if group)


def no_personal(rng, parity):
    """Numbers and texts that are none of it."""
    from faker import Faker

    fake = Faker("en_US")
    fake.seed_instance(rng.getrandbits(32))
    digits = lambda count: str(rng.randrange(1, 10)) + "".join(rng.choices("0123456789", k=count - 1))
    makers = [
        lambda: str(uuid.UUID(int=rng.getrandbits(128))), lambda: broken_luhn(rng, fake.credit_card_number("visa16")), lambda: broken_luhn(rng, fake.credit_card_number("amex")),
        lambda: fake.isbn13(), lambda: fake.isbn13().replace("-", ""), lambda: fake.ean13(), lambda: fake.iso8601(), lambda: str(fake.unix_time()),
        lambda: str(int(fake.unix_time() * 1000)), lambda: fake.ipv4(), lambda: fake.ipv6(), lambda: fake.mac_address(), lambda: rng.randbytes(16).hex(),
        lambda: f"ORD-{digits(4)}-{digits(6)}", lambda: f"{digits(3)}-{digits(2)}-{digits(3)}", lambda: f"v{digits(1)}.{digits(2)}.{digits(1)}",
        lambda: f"0.{digits(16)}", lambda: f"{digits(2)},{digits(3)},{digits(3)}.{digits(2)}", lambda: fake.numerify("+##.##"), lambda: fake.date(),
        lambda: f"@{fake.user_name()}", lambda: f"{fake.user_name()}@{fake.user_name()}", lambda: f"npm i left-pad@{digits(1)}.{digits(1)}.0",
        lambda: f"icon@{rng.choice('23')}x.png", lambda: f"git@github.com:{fake.user_name()}/app.git", lambda: fake.numerify("GB## ####"),
        lambda: broken_iban(rng, fake.iban()), lambda: f"9{digits(2)}-{digits(2)}-{digits(4)}", lambda: f"lat {fake.latitude()}, lon {fake.longitude()}",
        lambda: f"sha1 {rng.randbytes(20).hex()} size {digits(7)}",
    ]
    for maker in makers:
        for _ in range(2 * EACH):
            yield Document("personal_data", "no personal data", {"text": placed(rng.choice(CARRIERS[parity::2]), maker())[0]}, [])


def broken_luhn(rng, number):
    """The number with another check digit."""
    return number[:-1] + str((int(number[-1]) + rng.randrange(1, 10)) % 10)


def broken_iban(rng, number):
    """The number with another digit near its end."""
    return number[:-1] + str((int(number[-1]) + rng.randrange(1, 10)) % 10)


def injections(rng, parity):
    goals, attacks = sources.agentdojo_goals()[parity::2], sources.agentdojo_attacks()[parity::2]
    for attack in attacks:
        for goal in goals:
            text = attack.replace("{goal}", goal).replace("{user}", "Emma").replace("{model}", "the model")
            whole = f"Here is the page.\n{text}\nThat is all of it."
            yield Document("prompt_injection", "attack of AgentDojo", {"text": whole}, [(0, len(whole.encode()), "attack")], whole)
    for goal in goals:
        yield Document("prompt_injection", "goal of AgentDojo, bare", {"text": goal}, [(0, len(goal.encode()), "goal")], goal)


def benign(parity):
    """READMEs of the crates in the cargo registry, and what AgentDojo's tools answer, in leaves."""
    texts = [("tool results of AgentDojo", text) for text in sources.agentdojo_benign()[parity::2]]
    for path in sorted(pathlib.Path.home().glob(".cargo/registry/src/*/*/README*")):
        if hashlib.sha256(path.parent.name.encode()).digest()[0] % 2 == parity:
            texts.append(("READMEs of crates", path.read_bytes().decode(errors="replace")))
    for group, text in texts:
        lines, held = [], 0
        for line in text.splitlines(keepends=True):
            lines.append(line)
            held += len(line.encode())
            if held >= LEAF_BYTES:
                yield Document("benign", group, {"text": "".join(lines)}, [], "".join(lines))
                lines, held = [], 0
        if lines:
            yield Document("benign", group, {"text": "".join(lines)}, [], "".join(lines))
