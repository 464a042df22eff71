// SPDX-License-Identifier: Apache-2.0
//! Connections between ends of one process.

use std::os::unix::net::UnixListener;

use super::*;
use crate::random::random;

const LONG: Duration = Duration::from_secs(60);

const SUBJECT: Subject =
    Subject::Part { task: crate::TaskId([1; 16]), owner: String::new(), part: 7 };

/// Sends what was asked for, and then only the end.
fn echo(link: Arc<Link>, channel: ChannelKey, subject: Subject) -> io::Result<()> {
    let answer = move || {
        assert!(link.push_within(channel, None, &subject.to_bytes(), LONG).unwrap());
        link.end(channel);
    };
    std::thread::Builder::new().spawn(answer).map(drop)
}

/// Sends what was asked for, and never an end.
fn begin(link: Arc<Link>, channel: ChannelKey, subject: Subject) -> io::Result<()> {
    let answer = move || link.push_within(channel, None, &subject.to_bytes(), LONG);
    std::thread::Builder::new().spawn(answer).map(drop)
}

/// Never answers.
#[expect(clippy::unnecessary_wraps, reason = "as `Serve` wants it")]
fn stall(_link: Arc<Link>, _channel: ChannelKey, _subject: Subject) -> io::Result<()> {
    Ok(())
}

/// Cannot do anything.
fn fail(_link: Arc<Link>, _channel: ChannelKey, _subject: Subject) -> io::Result<()> {
    Err(IoKind::OutOfMemory.into())
}

/// A socket that is listened at until the end of a test.
struct Listener {
    address: Address,
    /// The ends that others connect to.
    ends: Arc<Mutex<Vec<Arc<Link>>>>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        #[expect(clippy::let_underscore_must_use, reason = "it may be gone")]
        let _ = std::fs::remove_file(&self.address.path);
    }
}

fn listen(serve: Serve) -> Listener {
    let number = u64::from_le_bytes(random().unwrap());
    let path = std::env::temp_dir().join(format!("sparkawait-{number:016x}.sock"));
    let listener = UnixListener::bind(&path).unwrap();
    let address = Address { path: path.to_str().unwrap().to_owned(), token: [5; 16] };
    let ends = Arc::new(Mutex::new(Vec::new()));
    let (of_thread, token) = (Arc::clone(&ends), address.token);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let end = Link::start(stream.unwrap(), token, Some(serve), None).unwrap();
            of_thread.lock().unwrap().push(end);
        }
    });
    Listener { address, ends }
}

fn received(link: &Link, channel: ChannelKey) -> Vec<Received> {
    let mut received = Vec::new();
    loop {
        received.push(link.receive(channel, LONG).unwrap());
        match received.last() {
            Some(Received::Message(cost, _)) => link.recycle(channel, *cost),
            Some(Received::Ended) => return received,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn all_that_a_process_asks_another_for_goes_over_one_connection() {
    let Listener { address, ends } = &listen(echo);

    let asked: Vec<_> = (0..4).map(|_| Link::ask(address, &SUBJECT).unwrap()).collect();

    for (link, channel) in &asked {
        let expected = [Received::Message(1, SUBJECT.to_bytes()), Received::Ended];
        assert_eq!(received(link, *channel), expected);
        assert!(Arc::ptr_eq(link, &asked[0].0));
        link.close(*channel);
    }
    assert_eq!(ends.lock().unwrap().len(), 1);
}

#[test]
fn who_waits_is_told_that_the_connection_is_lost_and_another_one_is_made() {
    let Listener { address, ends } = &listen(stall);
    let (link, channel) = Link::ask(address, &SUBJECT).unwrap();
    while ends.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
    let waiter = std::thread::spawn({
        let link = Arc::clone(&link);
        move || link.receive(channel, LONG)
    });

    ends.lock().unwrap()[0].lose("for a test");

    assert_eq!(waiter.join().unwrap().unwrap_err().kind(), IoKind::ConnectionAborted);
    let (other, _) = Link::ask(address, &SUBJECT).unwrap();
    assert!(!Arc::ptr_eq(&link, &other));
}

#[test]
fn who_closes_a_connection_says_why() {
    let Listener { address, ends } = &listen(begin);
    let (link, channel) = Link::ask(address, &SUBJECT).unwrap();
    // What is asked for behind the farewell would be refused.
    let begun = link.receive(channel, LONG).unwrap();
    assert_eq!(begun, Received::Message(1, SUBJECT.to_bytes()));

    ends.lock().unwrap()[0].leave(UNUSED, "for a test");

    let error = link.receive(channel, LONG).unwrap_err();
    assert_eq!(error.to_string(), "closed by the other end: for a test");
}

#[test]
fn who_does_not_know_the_token_gets_no_answer() {
    let Listener { address, .. } = &listen(echo);
    let asked = Link::ask(&Address { token: [6; 16], ..address.clone() }, &SUBJECT);

    // The other end may hang up before anything is asked for.
    let received = asked.and_then(|(link, channel)| link.receive(channel, LONG));

    assert_eq!(received.unwrap_err().kind(), IoKind::ConnectionAborted);
}

#[test]
fn what_cannot_be_served_is_refused_at_once() {
    let Listener { address, .. } = &listen(fail);

    let (link, channel) = Link::ask(address, &SUBJECT).unwrap();

    assert_eq!(link.receive(channel, LONG).unwrap(), Received::Reset(GIVEN_UP, Bytes::new()));
}

#[test]
fn a_connection_without_use_leaves_the_one_that_has_taken_its_place() {
    let Listener { address, .. } = &listen(stall);
    let place = &address.path;
    let (full, first) = Link::ask(address, &SUBJECT).unwrap();
    assert!(!full.forget_unused(place), "it is in use");
    let most = ConnectionConfig::of_host().max_channels;
    let channels: Vec<_> = (1..most).map(|_| full.open(&SUBJECT).unwrap()).collect();
    let (other, _) = Link::ask(address, &SUBJECT).unwrap();
    assert!(!Arc::ptr_eq(&full, &other));
    channels.into_iter().chain([first]).for_each(|channel| full.close(channel));

    assert!(full.forget_unused(place));

    let (same, _) = Link::ask(address, &SUBJECT).unwrap();
    assert!(Arc::ptr_eq(&same, &other));
}

#[test]
fn steps_that_share_a_connection_wait_for_room_that_others_have_taken() {
    const STEPS: usize = 13;
    const MESSAGES: usize = 37;

    let Listener { address, ends } = &listen(stall);
    let asked: Vec<_> = (0..STEPS).map(|_| Link::ask(address, &SUBJECT).unwrap()).collect();
    let sender = loop {
        if let Some(end) = ends.lock().unwrap().first()
            && asked.iter().all(|(_, channel)| end.is_wanted(*channel))
        {
            break Arc::clone(end);
        }
        std::thread::yield_now();
    };
    // A channel may have a few of them waiting, and all together more than the connection.
    let payload = Bytes::from(vec![7; 300 << 10]);

    let senders: Vec<_> = asked
        .iter()
        .map(|&(_, channel)| {
            let (sender, payload) = (Arc::clone(&sender), payload.clone());
            std::thread::spawn(move || {
                for _ in 0..MESSAGES {
                    while !sender.push_within(channel, None, &payload, LONG).unwrap() {}
                }
                sender.end(channel);
            })
        })
        .collect();
    let receivers: Vec<_> = asked
        .into_iter()
        .map(|(link, channel)| std::thread::spawn(move || received(&link, channel).len()))
        .collect();

    for sender in senders {
        sender.join().unwrap();
    }
    let arrived: Vec<_> = receivers.into_iter().map(|it| it.join().unwrap()).collect();
    assert_eq!(arrived, [MESSAGES + 1; STEPS]);
}
