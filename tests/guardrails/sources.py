"""What other people's packages say secrets, attacks and sentences look like: read from the installed packages, never copied."""

import ast
import importlib
import inspect
import pathlib
import pkgutil
import re
import string
import sysconfig

SITE = pathlib.Path(sysconfig.get_paths()["purelib"])

# Which plugin of detect-secrets, or rule of secretlint, means which of our types; what is in neither table has no type of ours.
DETECT_SECRETS = {
    "AWSKeyDetector": "aws", "AzureStorageKeyDetector": "azure-storage-key", "BasicAuthDetector": "basic-auth-url",
    "GitHubTokenDetector": "github", "GitLabTokenDetector": "gitlab", "MailchimpDetector": "mailchimp-api-key",
    "NpmDetector": "npm-token", "OpenAIDetector": "openai-api-key", "PypiTokenDetector": "pypi-token",
    "SendGridDetector": "sendgrid-api-key", "SlackDetector": "slack", "SquareOAuthDetector": "square-token",
    "StripeDetector": "stripe-secret-key", "TelegramBotTokenDetector": "telegram-bot-token", "TwilioKeyDetector": "twilio-api-key",
}
# Generic by design, or no secret: not typed.
UNTYPED = {"Base64HighEntropyString", "HexHighEntropyString", "IPPublicDetector", "KeywordDetector", "JwtTokenDetector", "PrivateKeyDetector"}
SECRETLINT = [
    (r"AKIA", "aws"), (r"npm_\[", "npm-token"), (r"xoxb\|xoxp", "slack"), (r"hooks\\\.slack", "slack"),
    (r"\?<password>\[-", "basic-auth-url"), (r"mongodb|mysql|postgres", "database-url"), (r"T3BlbkFJ", "openai-api-key"), (r"sk-ant-", "anthropic-api-key"), (r"gsk_", "groq-api-key"),
    (r"hf_\[", "huggingface-token"), (r"lin_api_", "linear-api-key"), (r"ntn_", "notion-token"),
    (r"SG\\\.", "sendgrid-api-key"), (r"shppa", "shopify-token"), (r"sk_live\|", "stripe-secret-key"),
    (r"ghp\|gho", "github"), (r"github_pat\)", "github"), (r"ghs\)_\[0-9\]", "github"), (r"glpat-", "gitlab"),
    (r"glc_", "grafana-token"), (r"glsa_", "grafana-token"), (r"hvs\\\.", "vault-token"), (r"hvb\\\.", "vault-token"),
    (r"hvr\\\.", "vault-token"), (r"dapi\[", "databricks-token"), (r"dckr_pat_", "docker-hub-token"), (r"figd_", "figma-token"),
    (r"ops_\(ey", "1password-service-account-token"), (r"\(\?<prefix>vcp", "vercel-token"), (r"\(\?<prefix>cfk", "cloudflare-token"),
    (r"tskey-", "tailscale-key"),
]


def of_detect_secrets():
    """Pairs of a type (or the plugin's own name, where we have none) and an expression."""
    import detect_secrets.plugins as plugins
    from detect_secrets.plugins.base import RegexBasedDetector

    found = []
    for module in pkgutil.iter_modules(plugins.__path__):
        loaded = importlib.import_module(f"detect_secrets.plugins.{module.name}")
        for name, kind in vars(loaded).items():
            is_own = isinstance(kind, type) and issubclass(kind, RegexBasedDetector) and kind.__module__ == loaded.__name__
            if not is_own or name in UNTYPED or inspect.isabstract(kind):
                continue
            for expression in kind().denylist:
                if expression.pattern in NO_SECRETS:
                    continue
                found.append((DETECT_SECRETS.get(name, name), "detect-secrets", expression.pattern, expression.flags))
    return found


def of_secretlint(folder):
    """The same of secretlint: the expressions that its preset is compiled from."""
    text = (folder / "node_modules/@secretlint/secretlint-rule-preset-recommend/module/index.js").read_text()
    literal = re.compile(r"(?:PATTERN|[pP]attern)\s*=\s*/((?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\\[\n])+)/([a-z]*)")
    found = []
    for match in literal.finditer(text):
        kind = next((kind for mark, kind in SECRETLINT if re.search(mark, match[1])), None)
        if kind:
            found.append((kind, "secretlint", match[1], re.IGNORECASE if "i" in match[2] else 0))
    return found


# Where an expression says far more than any key of that kind: what it is narrowed to, and why.
NARROWED = [
    (r"A3T[A-Z0-9]|AKIA|AGPA|AIDA|AROA", r"(AKIA|ASIA|A3T[A-Z0-9])[A-Z0-9]{16}", "the other prefixes are ids of users, groups and roles"),
    (r"aws.{0,20}?", r"(aws_secret_access_key|AWS_SECRET_ACCESS_KEY)( = |=|: )[0-9a-zA-Z/+]{40}", "a secret has no prefix: its usual name must stand before it"),
    (r"AccountKey=", r"AccountKey=[a-zA-Z0-9+/]{86}==", "64 bytes in base64"),
    (r"://[^", r"https://[a-z]{3,8}:[0-9A-Za-z_.~-]{8,24}@example.com", "user and password hold no brackets or spaces"),
    (r"(?<protocol>", r"(https|ftp)://[a-z0-9_]{3,12}:[-a-zA-Z0-9_]{6,24}@[a-z]{3,9}.example.com", "a host name"),
    (r"mongodb(?:", r"mongodb(\+srv)?://[a-z]{3,8}:[0-9A-Za-z_.~-]{8,24}@[a-z]{3,9}.example.com(:27017)?/app", "with user and password"),
    (r"mysql(?:x)", r"mysql://[a-z]{3,8}:[0-9A-Za-z_.~-]{8,24}@[a-z]{3,9}.example.com(:3306)?/app", "with user and password"),
    (r"postgres(?:ql)", r"postgres(ql)?://[a-z]{3,8}:[0-9A-Za-z_.~-]{8,24}@[a-z]{3,9}.example.com(:5432)?/app", "with user and password"),
    (r":_authToken=", r"//registry.example.com/:_authToken=npm_[0-9A-Za-z]{36}", "the registry's host, and npm's own tokens"),
    (r"SG\.\w{1,128}", r"SG\.[0-9A-Za-z_-]{22}\.[0-9A-Za-z_-]{43}", "16 and 32 bytes in base64"),
    (r"sq0csp-", r"sq0csp-[0-9A-Za-z_-]{43}", "no backslash"),
    (r"\d{8,10}:[0-9A-Za-z_-]{35}", r"[1-9]\d{7,9}:AA[0-9A-Za-z_-]{33}", "bot tokens start so"),
    (r"sk-[A-Za-z0-9-_]*", r"sk-[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}", "the first form; the later ones have a word behind sk-"),
    (r"ghs)_[0-9]", r"ghs_[1-9][0-9]{5,8}_eyJ[A-Za-z0-9_-]{20,60}\.[A-Za-z0-9_-]{40,90}\.[A-Za-z0-9_-]{43,86}", "the rest is a JSON Web Token"),
    (r"hooks\.slack\.com", r"https://hooks\.slack\.com/services/T[A-Z0-9]{8,10}/B[A-Z0-9]{8,10}/[0-9A-Za-z]{24}", "the sizes that are given out"),
]
# Expressions of what is no secret: an account's id.
NO_SECRETS = ("AC[a-z0-9]{32}",)


def generable(pattern):
    """The expression without what only says where it may stand, with repetitions cut to sizes that keys have."""
    narrowed = next((new for mark, new, _ in NARROWED if mark in pattern), None)
    if narrowed:
        return narrowed
    pattern = re.sub(r"\(\?<[!=](?:[^()\\]|\\.|\[[^\]]*\])*\)|\(\?[!=](?:[^()\\]|\\.|\[[^\]]*\])*\)", "", pattern)
    pattern = re.sub(r"\(\?(?:P)?<\w+>", "(", pattern).replace(r"\b", "").replace(r"\/", "/")
    tokens = re.findall(r"\\.|\[(?:\\.|[^\]\\])*\]|\{\d+(?:,\d*)?\}|.", pattern)
    sizes = {"*": "{0,24}", "+": "{1,24}"}
    return "".join(sizes.get(token) or (shortened(token) if re.fullmatch(r"\{\d+,\d*\}", token) else token) for token in tokens)


def shortened(repetition):
    """`{20,1024}` as `{20,84}`."""
    low, high = repetition[1:-1].split(",")
    return "{%s,%d}" % (low, min(int(high or 10**6), int(low) + 64))


def generate(random, pattern, flags):
    """A text of the expression. Case-insensitive ones are written as they stand."""
    import rstr

    importlib.import_module("rstr.xeger").STAR_PLUS_LIMIT = 10_000  # the sizes are cut in `generable`
    text = rstr.Rstr(random).xeger(re.compile(generable(pattern), flags & ~(re.IGNORECASE | re.VERBOSE) & 0xff))
    return "".join(character for character in text if character in string.printable).strip()


def presidio_templates():
    """Sentences with placeholders, from presidio-evaluator."""
    raw = SITE / "presidio_evaluator/data_generator/raw_data/templates.txt"
    return [line for line in raw.read_bytes().decode(errors="ignore").splitlines() if line.strip()]


def agentdojo_goals():
    """What AgentDojo's injections want an agent to do."""
    goals = []
    for path in sorted((SITE / "agentdojo/default_suites").rglob("injection_tasks.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "GOAL" for target in node.targets):
                text = literal_text(node.value)
                if text and text not in goals:
                    goals.append(text)
    return goals


def agentdojo_attacks():
    """How its attacks put a goal: templates with {goal}."""
    found = []
    for path in sorted((SITE / "agentdojo/attacks").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            text = literal_text(node) if isinstance(node, (ast.Constant, ast.JoinedStr)) else None
            if text and "{goal}" in text and text not in found and len(text) > 8:
                found.append(text)
    return found


def agentdojo_benign():
    """What its tools answer when nobody attacks, and what its users ask."""
    texts = []
    for path in sorted((SITE / "agentdojo/data/suites").rglob("*.yaml")):
        if path.name != "injection_vectors.yaml":
            texts.append(re.sub(r"\{injection[^}]*\}|\{[a-z_]*injection[a-z_0-9]*\}", "", path.read_text()))
    for path in sorted((SITE / "agentdojo/default_suites").rglob("user_tasks.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "PROMPT" for target in node.targets):
                texts.append(literal_text(node.value) or "")
    return [text for text in texts if text]


def literal_text(node):
    """A string constant; of an f-string what is written, a word for what is put in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "Alice" for part in node.values)
    return None
