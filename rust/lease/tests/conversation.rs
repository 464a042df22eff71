// SPDX-License-Identifier: Apache-2.0
//! Who may say what to the server of a job.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write as _;

use sparkawait_lease::{
    Conversation, Exchange, MOST_BYTES, OWNER_SCRIPT, OWNER_SUM, SCRIPT, SCRIPT_SUM, Secret,
    Server, Terms,
};

const SECRET: &str = "97 bits, or more";

struct Client {
    conversation: Conversation,
    server: Server,
}

impl Client {
    fn new() -> Self {
        Self { conversation: Conversation::default(), server: Server::default() }
    }

    fn known() -> Self {
        let mut client = Self::new();
        assert_eq!(client.say(&["AUTH", SECRET]), "+OK\r\n");
        client
    }

    fn send(&mut self, bytes: &[u8]) -> String {
        let mut replies = Vec::new();
        let secret = Secret::new(SECRET);
        self.conversation.take(bytes, &mut self.server, &secret, 7, &mut replies);
        String::from_utf8(replies).unwrap()
    }

    fn say(&mut self, words: &[&str]) -> String {
        self.send(frame(words).as_bytes())
    }
}

fn frame(words: &[&str]) -> String {
    let mut frame = format!("*{}\r\n", words.len());
    for word in words {
        write!(frame, "${}\r\n{word}\r\n", word.len()).unwrap();
    }
    frame
}

#[test]
fn nothing_is_answered_before_the_secret() {
    let mut client = Client::new();
    for words in [&["PING"][..], &["EVALSHA", SCRIPT_SUM, "3", "a", "b", "c"], &["HELLO", "3"]] {
        assert!(client.say(words).starts_with("-NOAUTH "), "{words:?}");
        assert!(!client.conversation.is_known());
    }
    assert_eq!(client.say(&["AUTH", "default", SECRET]), "+OK\r\n");
    assert_eq!(client.say(&["PING"]), "+PONG\r\n");
}

#[test]
fn who_says_another_secret_has_one_try() {
    for words in [&["AUTH", "no"][..], &["AUTH", ""], &["HELLO", "2", "AUTH", "default", "no"]] {
        let mut client = Client::new();
        assert!(client.say(words).starts_with("-WRONGPASS "), "{words:?}");
        assert!(client.conversation.is_over());
        assert_eq!(client.say(&["AUTH", SECRET]), "", "nothing is read any more");
    }
}

#[test]
fn no_more_than_64_kib_are_read_before_the_secret() {
    let mut client = Client::new();
    let pings = frame(&["PING"]);
    for _ in 0..MOST_BYTES / pings.len() {
        client.send(pings.as_bytes());
    }
    assert!(!client.conversation.is_over());
    assert!(client.send(pings.as_bytes()).contains("-ERR too much"));
    assert!(client.conversation.is_over());
}

#[test]
fn a_command_has_at_most_64_kib() {
    let mut client = Client::known();
    client.send(format!("*2\r\n$4\r\nPING\r\n${MOST_BYTES}\r\n").as_bytes());
    assert!(client.send("x".repeat(MOST_BYTES).as_bytes()).starts_with("-ERR the command is too"));
    for bytes in
        ["*65\r\n", "*1\r\n$65537\r\n", "PING\r\n", "*1\r\n$1\r\nabc", "*1\r\n$1\r\n\u{e4}\r\n"]
    {
        let mut client = Client::known();
        assert_eq!(client.send(bytes.as_bytes()), "-ERR Protocol error\r\n", "{bytes:?}");
        assert!(client.conversation.is_over());
    }
}

#[test]
fn commands_are_read_wherever_they_are_cut() {
    let all = [frame(&["AUTH", SECRET]), frame(&["PING"]), frame(&["QUIT"])].concat();
    for cut in 0..all.len() {
        let mut client = Client::new();
        let first = client.send(&all.as_bytes()[..cut]);
        let rest = client.send(&all.as_bytes()[cut..]);
        assert_eq!(first + &rest, "+OK\r\n+PONG\r\n+OK\r\n", "{cut}");
        assert!(client.conversation.is_over());
    }
}

#[test]
fn there_are_two_scripts() {
    let mut client = Client::known();
    for (script, sum) in [(SCRIPT, SCRIPT_SUM), (OWNER_SCRIPT, OWNER_SUM)] {
        assert_eq!(client.say(&["SCRIPT", "LOAD", script]), format!("$40\r\n{sum}\r\n"));
    }
    assert!(client.say(&["SCRIPT", "LOAD", "return 1"]).starts_with("-ERR "));
    assert!(client.say(&["EVAL", "return 1", "0"]).starts_with("-NOSCRIPT "));
    assert!(client.say(&["EVALSHA", &"0".repeat(40), "0"]).starts_with("-NOSCRIPT "));
    assert!(client.say(&["FLUSHALL"]).starts_with("-ERR unknown command"));
    assert_eq!(client.say(&["SELECT", "0"]), "+OK\r\n");
}

#[test]
fn an_exchange_is_carried_out_by_either_name_of_the_script() {
    let mut client = Client::known();
    let said = |number| Exchange {
        worker: "w".to_owned(),
        number,
        want: 3,
        least: 1,
        ..Exchange::default()
    };
    for (number, start) in [(1, ["EVALSHA", SCRIPT_SUM]), (2, ["EVAL", SCRIPT])] {
        let arguments = said(number).arguments(Terms::Calls(7), None);
        let mut words = start.to_vec();
        words.extend(["3", "limit", "limit:lately", "limit:wanting"]);
        words.extend(arguments.iter().map(String::as_str));
        let reply = client.say(&words);
        assert!(reply.starts_with("*5\r\n$5\r\nlease\r\n"), "{reply}");
    }
    for words in [&["3", "a", "b", "c"][..], &["2", "a", "b"], &[]] {
        let mut said = vec!["EVALSHA", SCRIPT_SUM];
        said.extend(words);
        assert!(client.say(&said).starts_with("-ERR "), "{words:?}");
    }
}

#[test]
fn absurd_numbers_are_refused_or_bounded() {
    let mut client = Client::known();
    let most = (1_u64 << 53).to_string();
    for (numbers, is_read) in [
        (["0", "1000", "7"], false),
        (["1", "0", "7"], false),
        (["-1", "1000", "7"], false),
        (["9007199254740993", "1000", "7"], false),
        (["1", &most, &most], true),
    ] {
        let mut words = vec!["EVALSHA", SCRIPT_SUM, "3", numbers[1], "b", "c", "", "rate"];
        words.extend(numbers);
        words.extend(["w", "1", &most, &most, &most, &most, "0", "0", &most, "1", "0"]);
        assert_eq!(client.say(&words).starts_with('*'), is_read, "{numbers:?}");
    }
}

#[test]
fn the_newer_protocol_is_spoken_to_who_asks_for_it() {
    let mut client = Client::new();
    let reply = client.say(&["HELLO", "3", "AUTH", "default", SECRET, "SETNAME", "me"]);
    assert!(reply.starts_with("%3\r\n$6\r\nserver\r\n$10\r\nsparkawait\r\n"), "{reply}");
    assert!(reply.ends_with("$5\r\nproto\r\n:3\r\n"), "{reply}");
    assert!(client.say(&["HELLO"]).starts_with("*6\r\n"));
    assert!(client.say(&["HELLO", "4"]).starts_with("-NOPROTO "));
    assert!(client.say(&["HELLO", "3", "AUTH"]).starts_with("%3"), "half of an option is ignored");
}

#[test]
fn messages_are_taken_in_their_order_from_those_who_know_the_secret() {
    let mut client = Client::new();
    assert!(client.say(&["PUBLISH", "reports", "no"]).starts_with("-NOAUTH "));
    assert!(!client.server.has_published());
    let mut client = Client::known();
    assert_eq!(client.say(&["PUBLISH", "reports", "{\"a\": 7}"]), ":1\r\n");
    assert_eq!(client.say(&["PUBLISH", "reports", ""]), ":1\r\n");
    assert!(client.say(&["PUBLISH", "reports"]).starts_with("-ERR "));
    assert!(client.server.has_published());
    assert_eq!(client.server.take_published(), ["{\"a\": 7}", ""]);
    assert!(!client.server.has_published());
}

#[test]
fn the_oldest_messages_get_lost_where_nobody_reads_them() {
    let mut client = Client::known();
    for number in 0..4113 {
        client.say(&["PUBLISH", "reports", &number.to_string()]);
    }
    let taken = client.server.take_published();
    assert_eq!((taken.len(), taken[0].as_str(), taken[4095].as_str()), (4096, "17", "4112"));
}

#[test]
fn the_last_words_of_a_task_do_not_get_lost_for_those_of_others() {
    let mut client = Client::known();
    client.say(&["PUBLISH", "ends", "the end"]);
    assert!(client.server.has_published());
    for number in 0..4113 {
        client.say(&["PUBLISH", "reports", &number.to_string()]);
    }
    let taken = client.server.take_published();
    // Who follows the task begins behind it.
    assert_eq!((taken.len(), taken[0].as_str()), (4097, "the end"));
    assert!(!client.server.has_published());
}
