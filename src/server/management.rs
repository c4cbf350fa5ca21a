//! Starts the management API and gives it what it needs of discovery and reload.

use std::sync::Arc;

use futures::FutureExt as _;

use super::{
    Rooms, StartError, background,
    doors::{ADMIN_LISTEN, ADMIN_SOCKET},
    upgrade,
};
use crate::{
    admin,
    budget::Failures,
    conf::Address,
    control::change::Heard,
    discovery::{self, Listing},
};

/// Serves the management API on its sockets.
///
/// # Errors
/// [`StartError::Listen`]
pub(super) fn start(rooms: &Arc<Rooms>) -> Result<(), StartError> {
    let conf = &rooms.conf.admin;
    let doors = rooms.doors.load();
    let socket = conf.socket.clone().map(Address::Unix).map(|at| doors.get(ADMIN_SOCKET, &at)).transpose()?.flatten();
    let tcp = conf.listen.map(Address::Tcp).map(|at| doors.get(ADMIN_LISTEN, &at)).transpose()?.flatten();
    let listeners =
        admin::Listeners::on(socket, tcp).map_err(|why| StartError::Listen(format!("the management API: {why}")))?;
    if let Some(address) = conf.listen.filter(|_| conf.tokens.is_empty()) {
        tracing::warn!(%address, "admin.listen has no tokens, so nobody can call it");
    }
    let management = Arc::new(admin::Rooms {
        control: Arc::clone(&rooms.control),
        resolver: rooms.resolver.clone(),
        discovery: admin::Discovery { hear: hear(rooms), ask: ask(rooms), changed: changed(rooms) },
        reload: Box::new({
            let rooms = Arc::clone(rooms);
            move || {
                let rooms = Arc::clone(&rooms);
                async move { background::reload(&rooms).await }.boxed()
            }
        }),
        upgrade: Box::new({
            let rooms = Arc::clone(rooms);
            move || {
                let rooms = Arc::clone(&rooms);
                async move { upgrade::hand_over(&rooms).await }.boxed()
            }
        }),
        failures: Failures::default(),
        sessions: admin::Sessions::default(),
    });
    let mut succeeded = rooms.vitals.succeeded.subscribe();
    tokio::spawn(async move {
        tokio::select! {
            () = admin::serve(listeners, management) => {}
            // the next process answers; what runs here is finished
            _ = succeeded.wait_for(|succeeded| *succeeded) => {}
        }
    });
    Ok(())
}

fn hear(rooms: &Arc<Rooms>) -> admin::Hear {
    let client = Arc::clone(&rooms.client);
    Box::new(move |target, protocol| {
        let client = Arc::clone(&client);
        async move {
            let listing = discovery::list_tools(&client, &target, protocol).await.map_err(|why| why.to_string())?;
            Ok(heard(&listing))
        }
        .boxed()
    })
}

fn heard(listing: &Listing) -> Heard {
    Heard { revision: listing.revision, tools: background::listed(listing), dropped: listing.dropped }
}

fn ask(rooms: &Arc<Rooms>) -> admin::Ask {
    let rooms = Arc::clone(rooms);
    Box::new(move |name| {
        let rooms = Arc::clone(&rooms);
        async move {
            let outcome = rooms.schedule.get()?.ask(&name).await?;
            Some(outcome.map(|listing| listing.tools.len()).map_err(|why| why.to_string()))
        }
        .boxed()
    })
}

fn changed(rooms: &Arc<Rooms>) -> admin::Changed {
    let rooms = Arc::clone(rooms);
    Box::new(move |name| {
        let rooms = Arc::clone(&rooms);
        async move {
            background::resolve_one(&rooms, &name).await;
            background::set_schedule(&rooms).await;
        }
        .boxed()
    })
}
