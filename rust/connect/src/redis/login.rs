// SPDX-License-Identifier: Apache-2.0
//! What comes first on a connection: who connects, to which database, and which server a sentinel
//! names.

use std::str::from_utf8;
use std::sync::Arc;

use sparkawait_task::secret::Secret;

use super::command::write_argument;
use super::resp::Reply;
use super::server::{Address, ReadFrom, Server};

/// Who connects, and for what.
pub(super) struct Login {
    server: Server,
    urls: Vec<Secret>,
    password: Option<Secret>,
}

/// Commands that are packed, and how many they are.
#[derive(Default)]
pub(super) struct Packed {
    pub(super) bytes: Vec<u8>,
    pub(super) count: usize,
    /// Whether all that matters is that somebody answers.
    pub(super) is_ping: bool,
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
            // One that needs none is somebody else than the server's `default`.
            (Some(username), None) => self.add(&["AUTH", username, ""]),
            (None, None) => {}
        }
    }
}

impl Login {
    /// Reads it out of a description.
    pub(super) fn new(server: &Server) -> Self {
        let secret = |text: &str, option: &str| {
            Secret::new(text, server.readers.get(option).map(Arc::clone))
        };
        let url = |(index, text): (usize, &String)| secret(text, &format!("url {index}"));
        Self {
            urls: server.url.iter().enumerate().map(url).collect(),
            password: server.password.as_deref().map(|text| secret(text, "password")),
            server: server.clone(),
        }
    }

    /// Takes over the secrets that a task was started with: they are the newest.
    pub(super) fn renew(&self, server: &Server) {
        let Self { urls, password, .. } = Self::new(server);
        let own = self.urls.iter().chain(&self.password);
        own.zip(urls.into_iter().chain(password)).for_each(|(own, new)| own.replace(new));
    }

    /// Returns the secrets for an address.
    pub(super) fn secrets(&self, index: usize) -> impl Iterator<Item = &Secret> {
        self.urls.get(index).into_iter().chain(&self.password)
    }

    /// Packs what a server is told that is found by an address of the description.
    pub(super) fn greeting(&self, index: usize) -> Packed {
        let (server, settings) = (&self.server, self.settings(index));
        let given = self.password.as_ref().map(Secret::text);
        // What is in the addresses of sentinels is for them.
        let own = settings.as_ref().filter(|_| server.sentinel.is_none());
        let username = server.username.as_deref().or(own.and_then(|it| it.username.as_deref()));
        let password = given.as_deref().or(own.and_then(|it| it.password.as_deref()));
        let mut packed = Packed::default();
        packed.add_login(username, password);
        let database = server.database.or(settings.map(|it| it.database)).unwrap_or_default();
        if database != 0 {
            packed.add(&["SELECT", &database.to_string()]);
        }
        if server.read_from == ReadFrom::Replica {
            packed.add(&["READONLY"]);
        }
        if packed.count == 0 {
            // A balancer may have taken the connection, and have no server behind it.
            packed.add(&["PING"]);
            packed.is_ping = true;
        }
        packed
    }

    /// Packs what a sentinel is asked; its last reply is the answer. `None`: there are no sentinels.
    pub(super) fn question(&self, index: usize) -> Option<Packed> {
        let name = self.server.sentinel.as_deref()?;
        let mut packed = Packed::default();
        if let Some(settings) = self.settings(index) {
            packed.add_login(settings.username.as_deref(), settings.password.as_deref());
        }
        packed.add(&["SENTINEL", "get-master-addr-by-name", name]);
        Some(packed)
    }

    /// Says that a sentinel does not know the primary.
    pub(super) fn unknown(&self) -> String {
        let name = self.server.sentinel.as_deref().unwrap_or_default();
        format!("this sentinel knows no primary of the name `{name}`")
    }

    fn settings(&self, index: usize) -> Option<Address> {
        Address::parse(&self.urls.get(index)?.text()).ok()
    }
}

/// Reads the address of a primary; none where there is none.
pub(super) fn address(reply: Reply<'_>) -> Option<(String, u16)> {
    let Reply::Array(array) = reply else { return None };
    let mut elements = array.elements();
    let (Reply::Text(host), Reply::Text(port)) = (elements.next()?, elements.next()?) else {
        return None;
    };
    Some((from_utf8(host).ok()?.to_owned(), from_utf8(port).ok()?.parse().ok()?))
}

/// Reads whether a server is a primary.
pub(super) fn is_primary(reply: Reply<'_>) -> bool {
    let Reply::Array(array) = reply else { return false };
    array.elements().next() == Some(Reply::Text(b"master"))
}

#[cfg(test)]
mod tests {
    use super::super::resp::parse;
    use super::{Reply, address, is_primary};

    fn read(bytes: &[u8]) -> Reply<'_> {
        parse(bytes).unwrap().unwrap().0
    }

    #[test]
    fn only_an_address_is_one() {
        let found = address(read(b"*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6390\r\n"));
        assert_eq!(found, Some(("127.0.0.1".to_owned(), 6390)));
        for other in [b"*-1\r\n".as_slice(), b"*1\r\n$1\r\na\r\n", b"*2\r\n$1\r\na\r\n$1\r\nb\r\n"]
        {
            assert_eq!(address(read(other)), None);
        }
    }

    #[test]
    fn a_role_says_whether_a_server_is_the_primary() {
        assert!(is_primary(read(b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n")));
        assert!(!is_primary(read(b"*2\r\n$5\r\nslave\r\n$1\r\na\r\n")));
        assert!(!is_primary(read(b"+master\r\n")));
    }
}
