// SPDX-License-Identifier: Apache-2.0
//! What comes first on a connection: who connects, to which database, and whom a sentinel is asked for.

use redis::RedisConnectionInfo;

use super::command::write_argument;
use super::server::{ReadFrom, Server, parse};

/// Who connects, and for what.
pub(super) struct Login(Server);

/// Commands that are packed, and how many they are.
#[derive(Default)]
pub(super) struct Packed {
    pub(super) bytes: Vec<u8>,
    pub(super) count: usize,
}

impl Packed {
    /// Packs one command.
    pub(super) fn of(arguments: &[&str]) -> Self {
        let mut packed = Self::default();
        packed.add(arguments);
        packed
    }

    fn add(&mut self, arguments: &[&str]) {
        self.bytes.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
        for argument in arguments {
            write_argument(argument.as_bytes(), &mut self.bytes);
        }
        self.count += 1;
    }

    /// Adds the command that says who connects, if anybody is named.
    fn add_login(&mut self, username: Option<&str>, password: Option<&str>) {
        match (username, password) {
            (Some(username), Some(password)) => self.add(&["AUTH", username, password]),
            (None, Some(password)) => self.add(&["AUTH", password]),
            (_, None) => {}
        }
    }
}

impl Login {
    /// Reads it out of a description.
    pub(super) fn new(server: &Server) -> Self {
        Self(server.clone())
    }

    /// Packs what a server is told that is found by an address of the description.
    pub(super) fn greeting(&self, index: usize) -> Packed {
        let (server, settings) = (&self.0, self.settings(index));
        // What is in the addresses of sentinels is for them.
        let own = settings.as_ref().filter(|_| server.sentinel.is_none());
        let username = server.username.as_deref().or(own.and_then(|it| it.username()));
        let password = server.password.as_deref().or(own.and_then(|it| it.password()));
        let mut packed = Packed::default();
        packed.add_login(username, password);
        let database = server.database.or(settings.map(|it| it.db())).unwrap_or_default();
        if database != 0 {
            packed.add(&["SELECT", &database.to_string()]);
        }
        if server.read_from == ReadFrom::Replica {
            packed.add(&["READONLY"]);
        }
        packed
    }

    /// Packs what a sentinel is asked; its last reply is the answer. `None`: there are no sentinels.
    pub(super) fn question(&self, index: usize) -> Option<Packed> {
        let name = self.0.sentinel.as_deref()?;
        let mut packed = Packed::default();
        if let Some(settings) = self.settings(index) {
            packed.add_login(settings.username(), settings.password());
        }
        packed.add(&["SENTINEL", "get-master-addr-by-name", name]);
        Some(packed)
    }

    /// Says that a sentinel does not know the primary.
    pub(super) fn unknown(&self) -> String {
        let name = self.0.sentinel.as_deref().unwrap_or_default();
        format!("this sentinel knows no primary of the name `{name}`")
    }

    fn settings(&self, index: usize) -> Option<RedisConnectionInfo> {
        let info = parse(self.0.url.get(index)?).ok()?;
        Some(info.redis_settings().clone())
    }
}
