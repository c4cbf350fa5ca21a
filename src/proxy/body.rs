//! The request body: judged by its head, then read whole, in time and to a limit (contract §2 rows 0, 415, 413).

use http::{HeaderMap, header};
use pingora::{ErrorType, proxy::Session};

use super::signals::Signals;
use crate::{policy::snapshot::Settings, refusal::Refusal};

/// Why there is no body.
pub(super) enum End {
    /// It is refused.
    Refused(Refusal),
    /// The client went away.
    Gone,
}

/// Media type, coding and declared length.
///
/// # Refuses
/// - [`Refusal::UnsupportedMediaType`], then [`Refusal::BodyTooLarge`]
pub(super) fn judge_head(headers: &HeaderMap, bytes_max: u64) -> Result<(), Refusal> {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let media = types.next().and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = media.split(';').next().unwrap_or("").trim();
    if types.next().is_some() || !essence.eq_ignore_ascii_case("application/json") {
        return Err(Refusal::UnsupportedMediaType);
    }
    let plain = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if !headers.get_all(header::CONTENT_ENCODING).iter().all(plain) {
        return Err(Refusal::UnsupportedMediaType);
    }
    let declared =
        headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<u64>().ok());
    if declared.is_some_and(|length| length > bytes_max) {
        return Err(too_large(bytes_max));
    }
    Ok(())
}

/// Reads the body to its end. A gateway that stops waits for it no longer than for anything else.
pub(super) async fn read(session: &mut Session, settings: &Settings, signals: &Signals) -> Result<Vec<u8>, End> {
    let declared = session
        .req_header()
        .headers
        .get(header::CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.parse::<usize>().ok());
    let deadline = tokio::time::Instant::now() + settings.request_body_timeout;
    let max = usize::try_from(settings.body_bytes_max).unwrap_or(usize::MAX);
    let mut body = Vec::with_capacity(declared.unwrap_or(0).min(max));
    loop {
        let piece = signals.within(deadline, session.downstream_session.read_request_body()).await;
        match piece {
            Err(_) => return Err(End::Refused(Refusal::TooSlow)),
            Ok(Ok(None)) => break,
            Ok(Ok(Some(piece))) => {
                if body.len().saturating_add(piece.len()) > max {
                    return Err(End::Refused(too_large(settings.body_bytes_max)));
                }
                body.extend_from_slice(&piece);
            }
            Ok(Err(error)) => {
                return Err(match error.etype() {
                    ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::H2Error => End::Gone,
                    ErrorType::ReadTimedout => End::Refused(Refusal::TooSlow),
                    _ => End::Refused(Refusal::Framing("the body's framing is broken")),
                });
            }
        }
    }
    if declared.is_some_and(|declared| declared != body.len()) {
        return Err(End::Gone);
    }
    Ok(body)
}

const fn too_large(limit: u64) -> Refusal {
    Refusal::BodyTooLarge { limit }
}
