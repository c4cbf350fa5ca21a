//! `requestState` goes out sealed to key, tool and arguments, and comes back opened (contract §3 "Eras").
//!
//! AES-256-GCM with a key kept in the store; the arguments enter by the SHA-256 of their RFC 8785 form, so that a client may
//! write them anew for the retry. A state that is not ours, or another call's, is `-32602`.

use aes_gcm::{
    Aes256Gcm, KeyInit,
    aead::{Aead, Payload},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

use super::Subject;
use crate::{
    model::{jsonrpc::Document, pin::write_canonical},
    policy::snapshot::ServerPolicy,
    refusal::Refusal,
};

/// Marks a sealed state and its format.
const PREFIX: &str = "tg1.";
const NONCE_BYTES: usize = 12;

/// What a state is sealed to.
#[derive(Clone, Copy, Debug)]
pub struct Call<'c> {
    /// The key's id.
    pub key_id: &'c str,
    /// Whom it calls for, where that decides on the credential.
    pub user: Option<&'c str>,
    /// The server.
    pub server: &'c ServerPolicy,
    /// What it is asked for.
    pub subject: &'c Subject,
    /// The checked arguments, JSON.
    pub arguments: &'c [u8],
}

/// Seals a server's `requestState` (a raw JSON string) for the caller; the result is a raw JSON string too.
///
/// # Refuses
/// - [`Refusal::Internal`]: the cipher failed.
pub fn seal(state_key: &[u8; 32], state: &[u8], call: &Call<'_>, nonce: [u8; NONCE_BYTES]) -> Result<Vec<u8>, Refusal> {
    let cipher = Aes256Gcm::new(state_key.into());
    let bound = binding(call)?;
    let sealed = cipher.encrypt((&nonce).into(), Payload { msg: state, aad: &bound }).map_err(|_| Refusal::Internal)?;
    let mut packed = nonce.to_vec();
    packed.extend_from_slice(&sealed);
    Ok(format!("\"{PREFIX}{}\"", URL_SAFE_NO_PAD.encode(packed)).into_bytes())
}

/// Opens a sealed state; the result is the server's raw JSON string.
///
/// # Refuses
/// - [`Refusal::InvalidParams`]: not ours, altered, or sealed to another key, tool or arguments.
pub fn open(state_key: &[u8; 32], state: &str, call: &Call<'_>) -> Result<Vec<u8>, Refusal> {
    let bad = || Refusal::InvalidParams("`requestState` is not valid for this call");
    let packed = state.strip_prefix(PREFIX).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok()).ok_or_else(bad)?;
    let (nonce, sealed) = packed.split_at_checked(NONCE_BYTES).ok_or_else(bad)?;
    let nonce: [u8; NONCE_BYTES] = nonce.try_into().map_err(|_| bad())?;
    let bound = binding(call)?;
    Aes256Gcm::new(state_key.into()).decrypt((&nonce).into(), Payload { msg: sealed, aad: &bound }).map_err(|_| bad())
}

/// The parts are told apart by their lengths, and a tool from a method, with a user or without, by how many there are.
fn binding(call: &Call<'_>) -> Result<Vec<u8>, Refusal> {
    let mut scratch = Vec::new();
    let document = Document::parse(call.arguments, &mut scratch).map_err(|_| Refusal::Internal)?;
    let mut canonical = Vec::with_capacity(call.arguments.len());
    write_canonical(&mut canonical, &document.spanned_root());
    let mut hash = Sha256::new();
    let mut bind = |part: &[u8]| {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    };
    bind(call.key_id.as_bytes());
    match call.subject {
        Subject::Tool(tool) => [&tool.exposed, &tool.name].into_iter().for_each(|part| bind(part.as_bytes())),
        Subject::Passed { method, .. } => {
            [&call.server.organization, &call.server.slug].into_iter().for_each(|part| bind(part.as_bytes()));
            bind(method.name.as_bytes());
        }
    }
    bind(&canonical);
    if let Some(user) = call.user {
        [b"user", user.as_bytes()].into_iter().for_each(bind);
    }
    Ok(hash.finalize().to_vec())
}
