// SPDX-License-Identifier: Apache-2.0
//! What a connector is: it connects and asks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::failure::Failure;
use crate::lookup::Misses;
use crate::reply_budget::ReplyShare;

/// What talks to a service.
pub trait Client: Send + Sync + 'static {
    /// A connection, which serves one request after the other.
    type Connection: Send + 'static;

    /// What messages and the log call it.
    const NAME: &'static str;

    /// Makes a connection that is ready to be asked.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, Failure>> + Send;

    /// Returns whether a connection that nobody uses is still open at the other end. What must not be
    /// done twice is lost over one that is not. It is asked now and then, and before each request.
    fn is_open(&self, connection: &mut Self::Connection) -> bool {
        let _ = connection;
        true
    }

    /// Asks for some keys; returns an answer for each, in their order.
    ///
    /// A reply of more than some KiB asks `share` for its bytes before it reads them: then the replies
    /// of a task never come to much more than 64 MiB together.
    ///
    /// Dropped where nobody wants the answers any more, and the connection with it.
    ///
    /// # Errors
    ///
    /// Why none of them was answered; the connection is of no more use. Where the [cause] allows it and
    /// the connection was kept from another request, they are asked for once more.
    ///
    /// [cause]: Failure::cause
    fn ask(
        &self,
        connection: &mut Self::Connection,
        keys: &[Vec<u8>],
        share: &mut ReplyShare,
    ) -> impl Future<Output = Result<Vec<Answer>, Failure>> + Send;
}

/// What a service has for one key.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The texts of its rows, one row behind the other: as many texts a row as there are columns.
    Found(Vec<Option<Bytes>>),
    /// Nothing.
    Missed,
    /// No answer for this key; the connection goes on.
    Failed(Failure),
}

/// The description of a function that asks a [`Client`].
pub struct Exchange<C> {
    /// What is asked.
    pub client: Arc<C>,
    /// The key of a row: a text with columns in braces.
    pub key: String,
    /// What becomes of rows whose keys find nothing.
    pub misses: Misses,
    /// The columns that what is found must not leave null.
    pub required: Vec<String>,
    /// Keys of a request.
    pub rows: usize,
    /// Connections of a task.
    pub connections: usize,
    /// Longest time to connect in.
    pub connect_timeout: Duration,
    /// Whether asking twice does what asking once does.
    pub is_repeatable: bool,
}

/// Without what the client knows.
impl<C: Client> fmt::Debug for Exchange<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(C::NAME).field("rows", &self.rows).finish_non_exhaustive()
    }
}
