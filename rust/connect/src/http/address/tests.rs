// SPDX-License-Identifier: Apache-2.0
//! Tests of addresses.

use arrow::array::record_batch;

use super::*;

/// The address of a row whose columns `a` and `b` have these values, or why there is none.
fn address_with(url: &str, query: &[(&str, &str)], a: &str, b: &str) -> Result<String, String> {
    let batch = record_batch!(("a", Utf8, [a]), ("b", Utf8, [b])).unwrap();
    let query: Vec<_> = query.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let address = Address::new(url, &query, None, batch.schema_ref()).unwrap();
    let mut rows = address.rows(&batch).unwrap();
    let url = rows.url(0).map(|url| url.unwrap());
    let target = rows.target(&Clients::for_test(), 0).map(|it| it.unwrap());
    // What is sent is what a reader of addresses makes of the whole.
    if let (Ok(url), Ok(target)) = (&url, &target) {
        let origin = &target.server.origin;
        let [start, end] = [Position::BeforeHost, Position::AfterPort];
        assert_eq!(origin.authority, url[start..end]);
        assert_eq!(
            (target.path.as_str(), origin.is_https),
            (&url[Position::BeforePath..Position::AfterQuery], url.scheme() == "https")
        );
    }
    assert_eq!(url.is_ok(), target.is_ok());
    url.map(String::from).map_err(|failed| failed.call.message)
}

fn address(url: &str, a: &str, b: &str) -> Result<String, String> {
    address_with(url, &[], a, b)
}

#[test]
fn a_value_stays_in_its_segment() {
    let url = "https://h/x/{a}/y/{b}";
    assert_eq!(address(url, "p/q?#", "..z").unwrap(), "https://h/x/p%2Fq%3F%23/y/..z");
    for value in ["", ".", ".."] {
        assert!(address(url, value, "z").unwrap_err().contains("a part of the path"));
        assert!(address(url, "z", value).unwrap_err().contains("a part of the path"));
    }
    assert!(address("https://h/{a}{b}/y", ".", ".").is_err());
    assert!(address("https://h/%2e{a}", ".", "").is_err());
    assert!(address("https://h/x\\{a}", "..", "").is_err());
    assert_eq!(address("https://h/v{a}/y", "", "").unwrap(), "https://h/v/y");
    assert_eq!(address("https://h/{a}{b}/y", "..", ".").unwrap(), "https://h/.../y");
}

#[test]
fn a_value_may_be_several_segments_where_that_is_said() {
    let url = "https://h/x/{+a}/y/{b}";
    let found = address(url, "2024/01/p q?#%..json", "r/s").unwrap();
    assert_eq!(found, "https://h/x/2024/01/p%20q%3F%23%25..json/y/r%2Fs");
    for value in ["", ".", "..", "p/..", "../p", "p/./q", "p/../../q"] {
        assert!(address(url, value, "z").unwrap_err().contains("a part of the path"), "{value}");
    }
    assert_eq!(address("https://h/{+a}-{b}", "/p//q/", "r").unwrap(), "https://h//p//q/-r");
    assert_eq!(address("{a}/{+b}", "https://h/v1", "x/y").unwrap(), "https://h/v1/x/y");
    assert!(address("{a}/{+b}", "https://h/v1", "x/../y").is_err());

    let batch = record_batch!(("a", Utf8, ["x"])).unwrap();
    for elsewhere in ["https://h/x?a={+a}", "https://{+a}.example.com/"] {
        let refused = Address::new(elsewhere, &[], None, batch.schema_ref()).err().unwrap();
        assert!(refused.message.contains("`+a`"), "{}", refused.message);
    }
}

#[test]
fn a_query_and_a_fragment_may_have_anything() {
    assert_eq!(address("https://h/x?a={a}&b={b}", "", "..").unwrap(), "https://h/x?a=&b=..");
    assert_eq!(address("https://h/x?p=/{a}/", "..", "").unwrap(), "https://h/x?p=/../");
    assert_eq!(address("https://h/x#/{a}", "", "").unwrap(), "https://h/x#/");
}

#[test]
fn an_address_that_is_too_long_is_told_so() {
    for (url, start) in [("https://h/?x={a}", ""), ("{a}", "https://h/?x=")] {
        let target = |bytes: usize| {
            let value = format!("{start}{}", "v".repeat(bytes));
            let batch = record_batch!(("a", Utf8, [value])).unwrap();
            let address = Address::new(url, &[], None, batch.schema_ref()).unwrap();
            let mut rows = address.rows(&batch).unwrap();
            rows.target(&Clients::for_test(), 0).map(|it| it.map(|it| it.path.as_str().len()))
        };

        assert_eq!(target(MOST_BYTES - 4).ok(), Some(Some(MOST_BYTES)));
        let message = target(MOST_BYTES - 3).unwrap_err().call.message;
        assert!(message.contains("more than 65534 bytes"), "{message}");
    }
}

#[test]
fn only_a_first_column_is_taken_as_it_is() {
    assert_eq!(address("{a}", "http://h:8/p/?q=1#f", "").unwrap(), "http://h:8/p/?q=1#f");
    assert_eq!(
        address("{a}/items/{b}", "https://h/v1", "x/y").unwrap(),
        "https://h/v1/items/x%2Fy"
    );
    assert!(address("{a}/items/{b}", "https://h", "..").is_err());
    assert!(address("{a}/items/{b}", "https://h?x=", "1").unwrap_err().contains("has a query"));
    assert!(address("{a}v1/{b}", "https://h/", "..").is_err());
    assert_eq!(address("{a}&b={b}", "https://h/?x=1", "/").unwrap(), "https://h/?x=1&b=%2F");
    assert_eq!(address("{a}://h/{b}", "https", "x").unwrap(), "https://h/x");
    for value in [" https://h", "https://h/a\nb", "ftp://h", "//h", "x"] {
        assert!(address("{a}", value, "").is_err(), "{value}");
    }
}

#[test]
fn a_host_of_a_row_cannot_leave_its_place() {
    let url = "https://{a}.example.com/x";
    assert_eq!(address(url, "api", "").unwrap(), "https://api.example.com/x");
    for value in ["evil.com/", "evil.com#", "evil.com?", "evil.com\\", "u@evil.com", "a:1", "%2f"] {
        assert!(address(url, value, "").is_err(), "{value}");
    }
}

#[test]
fn a_host_of_a_row_may_be_an_address_of_ipv6_with_or_without_its_brackets() {
    for (url, value) in [
        ("http://{a}:81/x", "::1"),
        ("http://{a}:81/x", "[::1]"),
        ("http://[{a}]:81/x", "0:0::1"),
        ("http://[::{a}]:81/x", "1"),
    ] {
        assert_eq!(address(url, value, "").unwrap(), "http://[::1]:81/x", "{url} {value}");
    }
    assert_eq!(
        address("http://u:p@{a}/x", "2001:db8::7", "").unwrap(),
        "http://u:p@[2001:db8::7]/x"
    );
    for value in ["::1]:82", "[::1", "::1/", "fe80::1%eth0", "1:2"] {
        assert!(address("http://{a}:81/x", value, "").is_err(), "{value}");
    }
}

#[test]
fn a_parameter_is_its_value_whatever_text_is_in_it() {
    let set =
        |url, a| address_with(url, &[("q", "{b} +{b}"), ("t", "a#b&c=%20+\"é")], a, "x/").unwrap();
    let query = "q=x%2F%20%2Bx%2F&t=a%23b%26c%3D%2520%2B%22%C3%A9";
    assert_eq!(set("https://h/", ""), format!("https://h/?{query}"));
    assert_eq!(set("https://h/p q#f", ""), format!("https://h/p%20q?{query}#f"));
    assert_eq!(set("{a}", "https://h/p?o=1"), format!("https://h/p?o=1&{query}"));
}

#[test]
fn a_query_is_set_whatever_is_there() {
    let set = |url, a| address_with(url, &[("k &", "{b}"), ("n", "1")], a, "v&").unwrap();
    let query = "k%20%26=v%26&n=1";
    assert_eq!(set("https://h/", ""), format!("https://h/?{query}"));
    assert_eq!(set("https://h/?o={a}", "?"), format!("https://h/?o=%3F&{query}"));
    assert_eq!(set("https://h/#f", ""), format!("https://h/?{query}#f"));
    assert_eq!(set("{a}", "https://h/p"), format!("https://h/p?{query}"));
    assert_eq!(set("{a}", "https://h/p?o=1#f"), format!("https://h/p?o=1&{query}#f"));
    assert_eq!(set("{a}", "https://h/p?"), format!("https://h/p?{query}"));
}

#[test]
fn a_server_that_all_rows_call_is_read_once() {
    let batch = record_batch!(("a", Utf8, ["x"])).unwrap();
    let is_fixed =
        |url: &str| Address::new(url, &[], None, batch.schema_ref()).unwrap().server.is_some();
    for url in [
        "http://h:7/{a}/x",
        "https://h",
        "HTTPS://h/x/{+a}?b={a}&c=d",
        "https://h?x={a}",
        "https://[::1]:7/x.json",
    ] {
        assert!(is_fixed(url), "{url}");
    }
    // A reader of addresses changes each of them, or there is more to it than a path.
    for url in [
        "{a}/x",
        "https://{a}/x",
        "https://h:{a}/x",
        "https://h/../{a}",
        "https://h/x y/{a}",
        "https://h/x#{a}",
        "https://user:secret@h/{a}",
        "https://h/\\{a}",
        "https://h/%2e/{a}",
    ] {
        assert!(!is_fixed(url), "{url}");
    }
}

#[test]
fn the_host_columns_of_an_address_are_known() {
    let of = |url| HostColumns::of(url).unwrap();
    let none = HostColumns { is_whole: false, columns: Vec::new() };
    for url in ["https://h/{a}", "https://{a}:{b}@h/", "{s}://h/{a}", "https://h?x=//{a}/", ""] {
        assert_eq!(of(url), none, "{url}");
    }
    for url in ["{a}", "{a}/x?u=https://{b}/", "{a}{b}"] {
        assert_eq!(of(url), HostColumns { is_whole: true, columns: Vec::new() }, "{url}");
    }
    assert_eq!(of("https://u:{p}@{a}.x:{b}/{c}").columns, ["a", "b"]);
    assert_eq!(of("{s}://{a/b}/{c}").columns, ["a/b"]);
}
