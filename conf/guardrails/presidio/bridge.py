#!/usr/bin/env python3
"""A bridge between a guardrail of detector `engine` and Presidio: `bridge.py [PORT]`, on 127.0.0.1.

    POST /  {"version":1,"stage":"input",…,"texts":["…"]}    ->  {"matches":[{"text":0,"type":"CREDIT_CARD"}]}

Runs without any model: Presidio's pattern recognizers on a blank spaCy pipeline. Names and places need one: put it in the place of the
blank pipeline, and raise the rule's `timeout`. `PRESIDIO_ENTITIES` names what is looked for, `PRESIDIO_SCORE` how sure Presidio must be.
Nothing of a text is logged or answered, and nothing is fetched from the network.
"""

import http.server
import json
import os
import sys

import spacy
import tldextract

tldextract.extract = tldextract.TLDExtract(suffix_list_urls=())  # the list that it ships, not one from the network

from presidio_analyzer import AnalyzerEngine, RecognizerRegistry  # noqa: E402
from presidio_analyzer.nlp_engine import SpacyNlpEngine  # noqa: E402

LANGUAGE = "en"
ENTITIES = os.environ.get("PRESIDIO_ENTITIES", "CREDIT_CARD,CRYPTO,EMAIL_ADDRESS,IBAN_CODE,UK_NHS,US_SSN").split(",")
SCORE = float(os.environ.get("PRESIDIO_SCORE", "0.5"))
BODY_BYTES_MAX = 16 << 20


class Blank(SpacyNlpEngine):
    """A pipeline that cuts text into words and knows no names."""

    def __init__(self):
        super().__init__(models=[{"lang_code": LANGUAGE, "model_name": "blank"}])
        self.nlp = {LANGUAGE: spacy.blank(LANGUAGE)}

    def load(self):
        """There is nothing to load."""


def analyzer():
    engine = Blank()
    registry = RecognizerRegistry(supported_languages=[LANGUAGE])
    registry.load_predefined_recognizers(languages=[LANGUAGE], nlp_engine=engine)
    return AnalyzerEngine(nlp_engine=engine, registry=registry, supported_languages=[LANGUAGE])


def matches(presidio, texts):
    """What is found, by the text's place in the list: each type once."""
    found = []
    for index, text in enumerate(texts):
        results = presidio.analyze(text, language=LANGUAGE, entities=ENTITIES, score_threshold=SCORE)
        found += [{"text": index, "type": kind} for kind in sorted({result.entity_type for result in results})]
    return found


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = int(self.headers.get("content-length") or 0)
        if not 0 < length <= BODY_BYTES_MAX:
            self.close_connection = True
            return self.answer(413, {})
        try:
            texts = json.loads(self.rfile.read(length))["texts"]
            self.answer(200, {"matches": matches(self.server.presidio, texts)})
        except (KeyError, TypeError, ValueError) as error:
            # A question that is none is a failure of the engine, and the rule's `on_engine_error` decides.
            self.answer(400, {"error": type(error).__name__})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def main():
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8089
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.presidio = analyzer()
    matches(server.presidio, ["ann@mail.example.com"])  # what Presidio reads first is read now
    print(f"presidio bridge: http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
