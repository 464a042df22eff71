// SPDX-License-Identifier: Apache-2.0
//! Where rows may not lead: into this machine and its network.
//!
//! A host that the user has written, or that `allow_hosts` has, may be anywhere. One that a column or
//! a redirection names may be no address of this machine, of a private network or of a cloud's
//! metadata. What a name stands for is looked at where the connection is made: who looks before lets a
//! name through that stands for something else the next time.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::dial::Addresses;

/// An address that rows may not lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forbidden {
    pub(super) address: IpAddr,
    /// What it is.
    pub(super) kind: &'static str,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.address, self.kind)
    }
}

/// Leaves addresses out that rows may not lead to; returns the first one if no other is left.
pub(super) fn leave_out_forbidden(addresses: &mut Addresses) -> Option<Forbidden> {
    let mut first = None;
    addresses.retain(|it| {
        let forbidden = forbidden(it.ip());
        first = first.or(forbidden);
        forbidden.is_none()
    });
    first.filter(|_| addresses.is_empty())
}

/// Says what rows may not lead to; `None` if they may.
pub(super) fn forbidden(address: IpAddr) -> Option<Forbidden> {
    // An address of IPv4 has several forms in IPv6.
    let address = address.to_canonical();
    let kind = match address {
        IpAddr::V4(address) => kind_of_v4(address),
        IpAddr::V6(address) => kind_of_v6(address),
    };
    kind.map(|kind| Forbidden { address, kind })
}

fn kind_of_v4(address: Ipv4Addr) -> Option<&'static str> {
    // The metadata of Azure and of Alibaba, at addresses that look public.
    let is_metadata = [Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(100, 100, 100, 200)];
    match address.octets() {
        _ if is_metadata.contains(&address) => Some("a cloud's metadata service"),
        [169, 254, ..] => Some("a link-local address, where clouds have their metadata"),
        [0 | 127, ..] => Some("an address of this machine"),
        // Of a carrier, of a link to it, and of a network that tests devices.
        [100, 64..=127, ..] | [192, 0, 0, _] | [198, 18..=19, ..] => Some("a private address"),
        _ if address.is_private() => Some("a private address"),
        // Of groups, and those that nobody has been given.
        [224..=255, ..] => Some("no address of one machine"),
        _ => None,
    }
}

fn kind_of_v6(address: Ipv6Addr) -> Option<&'static str> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => Some("an address of this machine"),
        // NAT64, 6to4, and older forms: they lead to an address of IPv4.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..]
        | [0, 0, 0, 0, 0 | 0xffff, 0, high, low] => {
            let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
            kind_of_v4(Ipv4Addr::new(a, b, c, d))
        }
        // NAT64 of one's own network, and sites before they were unique.
        [0x64, 0xff9b, 1, ..] | [0xfec0..=0xfeff, ..] => Some("a private address"),
        _ if address.is_unicast_link_local() => Some("a link-local address"),
        _ if address.is_unique_local() => Some("a private address"),
        _ if address.is_multicast() => Some("no address of one machine"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(address: &str) -> &'static str {
        forbidden(address.parse().unwrap()).map_or("", |it| it.kind)
    }

    #[test]
    fn rows_lead_to_public_addresses_alone() {
        for address in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "192.0.1.1",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.254",
            "2606:4700::1111",
            "64:ff9b::101:101",
            "2002:101:101::1",
        ] {
            assert_eq!(kind(address), "", "{address}");
        }
        for address in ["127.0.0.1", "0.0.0.0", "::1", "::", "::ffff:127.8.9.1", "64:ff9b::7f00:1"]
        {
            assert_eq!(kind(address), "an address of this machine", "{address}");
        }
        for address in [
            "10.1.2.3",
            "172.31.0.1",
            "192.168.7.7",
            "100.64.0.1",
            "192.0.0.8",
            "198.18.0.1",
            "198.19.255.1",
            "fd12::1",
            "64:ff9b:1::1",
            "2002:a01:203::1",
            "fec0::7",
            "feff:7::1",
            "::10.1.2.3",
            "::ffff:0:10.1.2.3",
        ] {
            assert_eq!(kind(address), "a private address", "{address}");
        }
        for address in
            ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "64:ff9b::a9fe:a9fe"]
        {
            assert!(kind(address).starts_with("a link-local address"), "{address}");
        }
        for address in ["168.63.129.16", "100.100.100.200"] {
            assert_eq!(kind(address), "a cloud's metadata service");
        }
        for address in ["224.0.0.1", "240.0.0.1", "255.255.255.255", "ff02::1"] {
            assert_eq!(kind(address), "no address of one machine", "{address}");
        }
    }

    #[tokio::test]
    async fn a_name_is_looked_at_by_what_it_stands_for() {
        let mut addresses = Addresses::of("localhost", 7).await.unwrap();

        let forbidden = leave_out_forbidden(&mut addresses).unwrap();

        assert_eq!(forbidden.kind, "an address of this machine");
        assert!(addresses.is_empty());
    }

    #[test]
    fn a_name_that_stands_for_others_too_leads_to_those_alone() {
        let found = ["169.254.169.254:7", "1.1.1.1:7", "[::1]:7"];
        let mut addresses = Addresses::in_turns(found.map(|it| it.parse().unwrap()));

        assert_eq!(leave_out_forbidden(&mut addresses), None);
        assert_eq!(addresses.len(), 1);
    }
}
