//! Tokens that are an issuer's for us and now, and each way in which they are not.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _},
};
use serde_json::json;

use super::*;
use crate::conf::TokenIssuer;

/// A key pair that was thrown away: its public half, and what it signed.
const RSA_N: &str = "zsnstOEl9BzRR9MEgIGwtrpSVKuNWQF_f5igWE8Dboi3PrinndpJ9tZfnB9qNuPaU5ryT6SY_0yIqn6ZUM2RxCDcFKH411AK2Zf-RQIF850SaKTRGn6_oiuYDvwLbXiG4uLO97EIhQ30FUk7JgBzqwe_Fitq8MQvbWcgGuhBy4ylUH5st4EPzXgsWFqYPSKXEB2v3taPC7996DCcB4-i8Syf9eQFF_nI2kIjXKYKP53h-IJTJtvThjrKQTfHvrIwREw_j2U_B1xZpX4hJqJS35Ds9UZkkrUoUnK7zqw9jPTJ1T3gcCP_rCfSCQwq5GoZsrbFOT99u-l4S7DEw9UnQw";
const RS256: &str = "eyJhbGciOiAiUlMyNTYiLCAia2lkIjogInIifQ.eyJpc3MiOiAiaHR0cHM6Ly9sb2dpbi50ZXN0LyIsICJhdWQiOiAiaHR0cHM6Ly9ndy50ZXN0L2dhdGV3YXkiLCAiZXhwIjogMjAwMDAwMDAwMCwgInN1YiI6ICJib3QifQ.Mab8me7gjA2OaG0jU6S1AD9lU2oGEc-_4UCj9JNcfz6OVteQv_u5ei46xSWcaN8WcdxVmml9qrxM-QChjkYhHk8c_IDAskrNkzA-HBroN6mNICidXDLXPxkR3IDZ7Hj4O5n7mBUYNY7DKfMZBmDbVubSQFzVLwaQiOl03HW511S7FkG_6BKrvFTOkzShGEX3nr1MGrd-OF1i5rud8m7TbcULaQ7SG5t9bDK6IgMXsxH4hCIpirmw4umHnyStSP04WWOq__z3Hb_QF5X1Zd05qg_N3lfcmwX47Yhd_aGL5yliNN-CbulZr3QMVeAV4noSF4Rn-DIB47jUdATorNNQeA";
const PS256: &str = "eyJhbGciOiAiUFMyNTYiLCAia2lkIjogInIifQ.eyJpc3MiOiAiaHR0cHM6Ly9sb2dpbi50ZXN0LyIsICJhdWQiOiAiaHR0cHM6Ly9ndy50ZXN0L2dhdGV3YXkiLCAiZXhwIjogMjAwMDAwMDAwMCwgInN1YiI6ICJib3QifQ.JjTkzGdZmto7bkJBn_o9M_TIXIIxGgNX41dl8ALd7GiizeKKsXLeH1ZZxpktf-XGfdfSqdh_SXim9P3Rq0ZxTzFkkE9t81ib39Cb6IeEml2sGN6nP1r01gWRQ7TRdJ2c0JzDSGyzEK3lTH2Nzw9CZbOK7bzHJ1u8XE_Q24WeThQi8nZO2xW5BJ-k8vYtWzCcvMTcupdpRCXSZxQ2vtyCaKYGsX1Y10qkov224T47noU1o6lUfHCQhFl3gy4Xi9rXivyms5a7WYQXE-A2ySb9FGL-mpaq8lgndpU7C5gGvVQIbMrsEV8Hba4Xfdi2mDrYb-Nrs14iTGRSfy7LOOVSgg";
const NOW: i64 = 1_900_000_000;

fn issuer(name: &str) -> Arc<Issuer> {
    let conf = TokenIssuer {
        issuer: name.to_owned(),
        jwks_url: "https://login.test/keys".to_owned(),
        organization: "acme".to_owned(),
        audience: None,
        claim: "sub".to_owned(),
    };
    let target = crate::upstream::mock::target("https://127.0.0.1:1/keys");
    Arc::new(Issuer::new(conf, "https://gw.test/gateway".to_owned(), Arc::new(target)))
}

fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A token of these parts, signed by `sign`.
fn token(header: &Json, claims: &Json, sign: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let message = format!("{}.{}", text(header.to_string().as_bytes()), text(claims.to_string().as_bytes()));
    format!("{message}.{}", text(&sign(message.as_bytes()))).into_bytes()
}

fn claims() -> Json {
    json!({ "iss": "https://login.test/", "aud": "https://gw.test/gateway", "sub": "bot", "exp": NOW + 60 })
}

fn with(name: &str, value: Json) -> Json {
    let mut claims = claims();
    claims[name] = value;
    claims
}

struct Es256(EcdsaKeyPair);

impl Es256 {
    fn draw() -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap())
    }

    fn jwk(&self, id: &str) -> Json {
        let point = self.0.public_key().as_ref();
        json!({ "kty": "EC", "crv": "P-256", "kid": id, "x": text(&point[1..33]), "y": text(&point[33..]) })
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec()
    }

    fn token(&self, id: &str, claims: &Json) -> Vec<u8> {
        token(&json!({ "alg": "ES256", "kid": id }), claims, |message| self.sign(message))
    }
}

fn learnt(jwks: &[Json]) -> [Arc<Issuer>; 1] {
    let issuer = issuer("https://login.test/");
    issuer.learn(json!({ "keys": jwks }).to_string().as_bytes(), 1).unwrap();
    [issuer]
}

fn is_valid(issuers: &[Arc<Issuer>], token: &[u8]) -> bool {
    match judge(issuers, token, NOW) {
        Judged::Valid(_, subject) => {
            assert_eq!(subject.key_id, "bot");
            true
        }
        Judged::Invalid | Judged::Foreign => false,
    }
}

#[test]
fn every_kind_of_signature_that_is_taken_is_verified() {
    let key = Es256::draw();
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let edwards = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
    let issuers = learnt(&[
        key.jwk("e"),
        json!({ "kty": "OKP", "crv": "Ed25519", "kid": "d", "x": text(edwards.public_key().as_ref()) }),
        json!({ "kty": "RSA", "kid": "r", "n": RSA_N, "e": "AQAB" }),
    ]);
    assert_eq!(issuers[0].key_count(), 3);
    let eddsa = token(&json!({ "alg": "EdDSA", "kid": "d" }), &claims(), |m| edwards.sign(m).as_ref().to_vec());
    for (name, good) in
        [("ES256", key.token("e", &claims())), ("EdDSA", eddsa), ("RS256", RS256.into()), ("PS256", PS256.into())]
    {
        assert!(is_valid(&issuers, &good), "{name}");
        for at in [good.len() - 8, good.len() / 2] {
            let mut altered = good.clone();
            altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
            assert!(!is_valid(&issuers, &altered), "{name}, altered at {at}");
        }
    }
}

#[test]
fn what_is_not_the_issuers_for_us_and_now_is_not_valid() {
    let (key, other) = (Es256::draw(), Es256::draw());
    let issuers = learnt(&[key.jwk("e"), {
        let mut only = Es256::draw().jwk("only");
        only["alg"] = json!("ES384");
        only
    }]);
    let row = |claims: Json| key.token("e", &claims);
    let without = |name: &str| {
        let mut claims = claims();
        claims.as_object_mut().unwrap().remove(name);
        row(claims)
    };
    let none = token(&json!({ "alg": "none", "kid": "e" }), &claims(), |_| Vec::new());
    let point = key.0.public_key().as_ref().to_vec();
    let shared = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &point);
    let confused = |m: &[u8]| ring::hmac::sign(&shared, m).as_ref().to_vec();
    for (name, bad) in [
        ("another key under the same id", other.token("e", &claims())),
        ("an unknown id", key.token("x", &claims())),
        ("no id", token(&json!({ "alg": "ES256" }), &claims(), |m| key.sign(m))),
        ("no signature", none),
        ("the public key as a secret", token(&json!({ "alg": "HS256", "kid": "e" }), &claims(), confused)),
        ("another algorithm", token(&json!({ "alg": "ES384", "kid": "e" }), &claims(), |m| key.sign(m))),
        ("a key of another algorithm", token(&json!({ "alg": "ES256", "kid": "only" }), &claims(), |m| key.sign(m))),
        (
            "a critical header",
            token(&json!({ "alg": "ES256", "kid": "e", "crit": ["x"], "x": 1 }), &claims(), |m| key.sign(m)),
        ),
        ("another audience", row(with("aud", json!("https://other.test")))),
        ("a list without ours", row(with("aud", json!(["a", "b"])))),
        ("expired", row(with("exp", json!(NOW - CLOCK_SKEW_SECONDS)))),
        ("an end that is text", row(with("exp", json!((NOW + 60).to_string())))),
        ("an end that is null", row(with("exp", Json::Null))),
        ("not yet", row(with("nbf", json!(NOW + CLOCK_SKEW_SECONDS + 1)))),
        ("a beginning that is text", row(with("nbf", json!("1")))),
        ("a subject that is a number", row(with("sub", json!(7)))),
        ("no audience", without("aud")),
        ("no end", without("exp")),
        ("no subject", without("sub")),
        ("another issuer", row(with("iss", json!("https://login.test")))),
        ("no issuer", without("iss")),
    ] {
        assert!(!is_valid(&issuers, &bad), "{name}");
    }
    for (name, good) in [
        ("in a list", row(with("aud", json!(["a", "https://gw.test/gateway"])))),
        ("within the skew", row(with("exp", json!(NOW - CLOCK_SKEW_SECONDS + 1)))),
        ("with a fraction", row(with("exp", json!(NOW as f64 + 0.5)))),
        ("begun", row(with("nbf", json!(NOW)))),
    ] {
        assert!(is_valid(&issuers, &good), "{name}");
    }
}

#[test]
fn what_is_no_token_of_ours_is_left_to_be_a_key() {
    let key = Es256::draw();
    let issuers = learnt(&[key.jwk("e")]);
    let long = key.token("e", &with("x", json!("x".repeat(TOKEN_BYTES_MAX))));
    for token in [
        &b"toolgate_key"[..],
        b"eyJ.a.b",
        b"eyJ",
        b"a.b.c",
        &long,
        &key.token("e", &with("iss", json!("https://x.test"))),
    ] {
        assert!(matches!(judge(&issuers, token, NOW), Judged::Foreign));
    }
    assert!(matches!(judge(&[], &key.token("e", &claims()), NOW), Judged::Foreign));
}

#[test]
fn keys_are_asked_for_when_they_are_stale_or_missing_and_not_too_often() {
    let key = Es256::draw();
    let [issuer] = learnt(&[key.jwk("e")]);
    let jwks = json!({ "keys": [key.jwk("e")] }).to_string();
    assert!(issuer.is_due(REFRESH_MS + 1) && !issuer.is_due(REFRESH_MS + 2), "once");
    assert!(issuer.is_due(REFRESH_MS + 1 + REPEAT_MS), "it did not answer");
    issuer.learn(jwks.as_bytes(), 2 * REFRESH_MS).unwrap();
    assert!(!issuer.is_due(2 * REFRESH_MS + REPEAT_MS));
    assert!(!is_valid(&[Arc::clone(&issuer)], &key.token("new", &claims())));
    assert!(issuer.is_due(2 * REFRESH_MS + REPEAT_MS + 1), "a token named another key");
    assert!(!issuer.is_due(2 * REFRESH_MS + 2 * REPEAT_MS + 2));
    for bad in ["", "{}", r#"{"keys":[]}"#, r#"{"keys":[{"kty":"oct","kid":"e","k":"AAAA"}]}"#] {
        assert!(issuer.learn(bad.as_bytes(), 1).is_err(), "{bad}");
        assert_eq!(issuer.key_count(), 1, "what is held stays");
    }
}
