//! Pricing: manual prices with tiers and times, comparing and importing lists, the simulator and the history.

use serde_json::json;
use tollgate_testkit::Upstream;

use super::{
    Person,
    attacks::signed_in,
    hidden, location,
    operators::{make, owner, upstream},
    reloads_from,
};
use crate::{
    admin::{Admin, ok},
    identity::make_member,
    support,
};

fn admin_with_channel(upstream: &Upstream) -> Admin {
    let admin = Admin::of(support::gateway_for(upstream));
    make_member(&admin, "op", "operator");
    admin
}

#[test]
fn price_is_set_with_tiers_and_a_schedule() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let mut op = signed_in(&admin, "op");
    let page = op.page(&admin.gateway, "/pricing/model?model=echo");
    let before = |page: &str| {
        let (_, rest) = page.split_once("name=\"before\" value=\"").unwrap();
        rest.split('"').next().unwrap().replace("&#34;", "\"")
    };
    let held = before(&page);
    let fields = [
        ("model", "echo"),
        ("entry", "0"),
        ("before", held.as_str()),
        ("input", "$1.50"),
        ("output", "6"),
        ("cache_read", ""),
        ("tier_0_above", "200,000"),
        ("tier_0_input", "3"),
    ];
    assert_eq!(location(&op.post(&admin.gateway, "/pricing/model", &fields)), "/pricing/model?model=echo");
    let price = |admin: &Admin| admin.get("/admin/v1/prices?model=echo")["items"][0]["price"].clone();
    let set = price(&admin);
    assert_eq!(
        (&set["input"], &set["tiers"][0]["above"], &set["tiers"][0]["input"]),
        (&json!("1.50"), &json!(200_000), &json!("3.00"))
    );
    let stale = op.post(&admin.gateway, "/pricing/model", &fields);
    assert!(stale.status == 422 && stale.text().contains("It was changed since this page"), "{}", stale.text());

    let page = op.page(&admin.gateway, "/pricing/model?model=echo&entry=new");
    let held = before(&page);
    let later = [("model", "echo"), ("entry", "1"), ("before", held.as_str()), ("input", "9"), ("valid_from", "2090-01-01")];
    location(&op.post(&admin.gateway, "/pricing/model", &later));
    assert_eq!(price(&admin)[1]["valid_from"], "2090-01-01T00:00:00Z");
    let list = op.page(&admin.gateway, "/pricing");
    assert!(list.contains("$1.50") && list.contains("changes on") && list.contains("by hand"), "{list}");
    assert!(op.page(&admin.gateway, "/pricing?search=ECH").contains("$1.50"));
    assert!(op.page(&admin.gateway, "/pricing?search=nothing").contains("No model matches."));
    let of_all = op.page(&admin.gateway, "/pricing/history");
    assert!(of_all.contains("/pricing/history?model=echo\">echo</a>") && of_all.contains("Input $1.50"), "{of_all}");
    let history = op.page(&admin.gateway, "/pricing/history?model=echo");
    assert!(
        history.contains("Input $1.50") && history.contains("from 1 Jan 2090 UTC: Input $9.00") && history.contains("<span>op"),
        "{history}"
    );

    let held = before(&op.page(&admin.gateway, "/pricing/model?model=echo"));
    for (field, value) in [("input", "cheap"), ("tier_0_output", "-1"), ("tier_0_above", "many"), ("valid_from", "soon")] {
        let sent = [("model", "echo"), ("entry", "0"), ("before", held.as_str()), ("tier_0_above", "5"), ("output", "1")];
        let sent: Vec<_> = sent.into_iter().filter(|(name, _)| *name != field).chain([(field, value)]).collect();
        let answer = op.post(&admin.gateway, "/pricing/model", &sent);
        let page = answer.text();
        assert_eq!(answer.status, 422, "{field}: {page}");
        let (before, _) = page.split_once("class=\"err\"").unwrap_or_else(|| panic!("{field}: {page}"));
        assert!(before.rsplit("<div class=\"field").next().unwrap().contains(&format!("name=\"{field}\"")), "{field}: {page}");
    }
    let wrong = op.post(&admin.gateway, "/pricing/model/remove?model=echo", &[("typed_name", "no")]);
    assert!(wrong.status == 422 && wrong.text().contains("This is not the name."), "{}", wrong.text());
    assert_eq!(reloads_from(&wrong.text()), "/pricing/model?model=echo");
    let lost = Person::default().post(&admin.gateway, "/pricing/model?model=echo&entry=0", &later);
    assert_eq!(location(&lost), "/sign-in?to=%2Fpricing%2Fmodel%3Fmodel%3Decho%26entry%3D0&lost=form");
    assert_eq!(location(&op.post(&admin.gateway, "/pricing/model/remove?model=echo", &[("typed_name", "echo")])), "/pricing");
    assert_eq!(price(&admin), json!(null));
    assert!(op.page(&admin.gateway, "/pricing/unpriced").contains("Set price"));
    assert_eq!(op.get(&admin.gateway, "/pricing/model?model=no-such").status, 404);
}

/// The fields of the form that the page has, as a browser would send them.
fn fields(page: &str) -> Vec<(String, String)> {
    let (_, form) = page.split_once("action=\"/pricing/model?").unwrap();
    let (form, _) = form.split_once("</form>").unwrap();
    let attribute = |tag: &str, name: &str| {
        let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
        Some(rest.split('"').next()?.replace("&#34;", "\""))
    };
    let inputs = form.split("<input").skip(1).map(|rest| rest.split('>').next().unwrap());
    let sent = inputs.filter(|tag| !tag.contains("type=\"checkbox\"") || tag.contains(" checked"));
    sent.filter_map(|tag| Some((attribute(tag, "name")?, attribute(tag, "value").unwrap_or_default()))).collect()
}

#[test]
fn changing_a_figure_keeps_the_time_and_the_tiers_of_a_price() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let mut op = signed_in(&admin, "op");
    let price = |admin: &Admin| admin.get("/admin/v1/prices?model=echo")["items"][0]["price"].clone();
    let put = |tiers: u64| {
        let tiers: Vec<_> = (1..=tiers).map(|tier| json!({"above": tier * 1_000, "input": tier.to_string()})).collect();
        let later = json!({"valid_from": "2090-01-01T08:00:00Z", "input": "2", "output": "3", "tiers": tiers});
        ok(&admin.call("PUT", "/admin/v1/prices/echo", Some(&json!({"price": [{"input": "1", "output": "2"}, later]}))));
    };
    put(16);
    let (held, path) = (price(&admin), "/pricing/model?model=echo&entry=1");
    let page = op.page(&admin.gateway, path);
    assert!(page.contains("From 1 Jan 2090, 08:00 UTC.") && page.contains("from 1 Jan 2090, 08:00 UTC</a>"), "{page}");
    let mut send = |page: &str, changed: (&str, &str)| {
        let typed: Vec<_> = fields(page);
        assert!(typed.iter().any(|(name, _)| name == changed.0), "{page}");
        let sent = typed.iter().filter(|(name, _)| name != changed.0 && name != "csrf");
        let sent: Vec<(&str, &str)> = sent.map(|(name, value)| (name.as_str(), value.as_str())).chain([changed]).collect();
        op.post(&admin.gateway, "/pricing/model", &sent)
    };
    location(&send(&page, ("output", "4")));
    let mut expected = held;
    expected[1]["output"] = json!("4.00");
    assert_eq!(price(&admin), expected);

    let page = admin_page(&admin, path);
    location(&send(&page, ("valid_from", "2090-01-02")));
    assert_eq!(price(&admin)[1]["valid_from"], "2090-01-02T00:00:00Z");
    assert_eq!(price(&admin)[1]["tiers"].as_array().unwrap().len(), 16);
}

fn admin_page(admin: &Admin, path: &str) -> String {
    signed_in(admin, "op").page(&admin.gateway, path)
}

#[test]
fn model_factor_is_set_on_the_page_of_group_prices() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let mut op = signed_in(&admin, "op");
    ok(&admin.call("PUT", "/admin/v1/prices/echo", Some(&json!({"price": {"input": "2", "output": "4"}}))));
    let own = json!({"ec*": "2"});
    let group = json!({"name": "team", "channels": ["echo"], "sale_multiplier": "1.5", "model_multipliers": own});
    let revision = admin.post("/admin/v1/groups", &group)["revision"].to_string();
    let list = op.page(&admin.gateway, "/pricing/groups?groups_from=team");
    assert!(list.contains("team <span class=\"dim\">× 1.5") && list.contains("$4.00 / $8.00"), "{list}");
    assert!(list.contains("× 2 <span class=\"badge\">ec*</span>"), "{list}");
    assert!(
        list.contains("/pricing/groups?groups_from=team&amp;model=echo") || list.contains("groups_from=team&#38;model=echo"),
        "{list}"
    );
    let path = "/pricing/groups?groups_from=team&model=echo";
    let form = op.page(&admin.gateway, path);
    assert!(form.contains("Multipliers of one model") && form.contains("Empty: × 2 of ec*"), "{form}");

    let mut send = |revision: &str, factor: &str| {
        op.post(&admin.gateway, path, &[("group_0", "team"), ("revision_0", revision), ("factor_0", factor)])
    };
    let wrong = send(&revision, "cheap");
    assert!(wrong.status == 422 && wrong.text().contains("Enter a factor such as"), "{}", wrong.text());
    assert!(wrong.text().contains("value=\"cheap\""), "what was typed is kept: {}", wrong.text());
    assert_eq!(location(&send(&revision, "0.5")), "/pricing/groups?groups_from=team");
    let set = admin.get("/admin/v1/groups/team");
    assert_eq!(set["model_multipliers"], json!({"ec*": "2", "echo": "0.5"}));
    let stale = send(&revision, "0.7");
    assert!(stale.status == 422 && stale.text().contains("It was changed since this page"), "{}", stale.text());
    location(&send(&set["revision"].to_string(), ""));
    assert_eq!(admin.get("/admin/v1/groups/team")["model_multipliers"], own);
    let prices = op.page(&admin.gateway, "/pricing?group=team");
    assert!(prices.contains("<span class=\"dim\">× 2</span>") && prices.contains("after the multiplier of the group"), "{prices}");
}

#[test]
fn price_list_is_compared_and_only_picked_rows_are_written() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let mut op = signed_in(&admin, "op");
    // The built-in price was set by hand.
    ok(&admin.call("PUT", "/admin/v1/prices/echo", Some(&json!({"price": null}))));
    let list = "model,input,output\necho,0.30,1.20\nother,1,2\n";
    let asked = [("source", "csv"), ("to", "sale"), ("models", ""), ("file", list)];
    let answer = op.post(&admin.gateway, "/pricing/import", &asked);
    let page = answer.text();
    assert!(answer.status == 200 && page.contains("value=\"sale:echo\"") && page.contains("Input $0.30"), "{page}");
    let none = op.post(&admin.gateway, "/pricing/import/apply", &asked);
    assert!(none.status == 422 && none.text().contains("Pick at least one price."), "{}", none.text());
    let apply = "/pricing/import/apply";
    let revision = hidden(&page, apply, "revision");
    let import = |op: &mut Person, revision: &str| {
        let picked = [&asked[..], &[("apply", "sale:echo"), ("revision", revision)]].concat();
        op.post(&admin.gateway, apply, &picked)
    };
    admin.post("/admin/v1/groups", &json!({"name": "meanwhile", "channels": ["echo"]}));
    let stale = import(&mut op, &revision);
    let page = stale.text();
    assert!(stale.status == 422 && page.contains("It was changed since this page was loaded."), "{page}");
    assert_eq!(admin.get("/admin/v1/prices?model=echo")["items"][0]["price"], json!(null));
    // The difference that is shown with it is that to the catalog of now.
    assert_eq!(location(&import(&mut op, &hidden(&page, apply, "revision"))), "/pricing");
    assert_eq!(admin.get("/admin/v1/prices?model=echo")["items"][0]["price"]["input"], "0.30");

    ok(&admin.call("PUT", "/admin/v1/prices/echo", Some(&json!({"price": {"input": "7"}}))));
    let kept = op.post(&admin.gateway, "/pricing/import", &asked).text();
    let row = kept.split("value=\"sale:echo\"").nth(1).unwrap();
    assert!(row.split('>').next().unwrap().contains("disabled"), "what was set by hand cannot be picked: {kept}");
    let forced = import(&mut op, &hidden(&kept, apply, "revision"));
    assert_eq!(forced.status, 422, "{}", forced.text());
    assert_eq!(admin.get("/admin/v1/prices?model=echo")["items"][0]["price"]["input"], "7.00");
    for (fields, says) in [
        (vec![("source", "csv"), ("to", "sale"), ("file", "")], "Paste a price list"),
        (vec![("source", "litellm"), ("to", "sale"), ("file", "{not json")], "class=\"err\""),
    ] {
        let answer = op.post(&admin.gateway, "/pricing/import", &fields);
        assert!(answer.status == 422 && answer.text().contains(says), "{}", answer.text());
    }
    assert_eq!(op.post(&admin.gateway, "/pricing/import", &[("source", "built_in"), ("to", "both")]).status, 200);
}

#[test]
fn simulator_names_prices_and_exclusions() {
    let upstream = Upstream::start();
    let admin = admin_with_channel(&upstream);
    let mut op = signed_in(&admin, "op");
    assert!(op.page(&admin.gateway, "/pricing/simulate").contains("value=\"1000\""));
    let page = op.page(&admin.gateway, "/pricing/simulate?model=chat-model&group=default&input=1000000&output=0");
    assert!(page.contains("The caller pays") && page.contains("1,000,000"), "{page}");
    let unknown = op.page(&admin.gateway, "/pricing/simulate?model=nothing&group=default&input=1");
    assert!(unknown.contains("no channel serves a model of this name"), "{unknown}");
    let key = op.page(&admin.gateway, "/pricing/simulate?model=chat-model&key=unknown&input=1");
    assert!(key.contains("There is no such key"), "{key}");
}

/// The position of a link in a page.
fn place(page: &str, link: &str) -> usize {
    page.find(link).unwrap_or_else(|| panic!("{link}: {page}"))
}

#[test]
fn groups_and_prices_are_sorted_by_the_heads_of_their_tables() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut op = owner(&admin);
    make(&admin, &mut op, &upstream, "main");
    for (name, multiplier) in [("zeta", "3"), ("alpha", "2")] {
        admin.post("/admin/v1/groups", &json!({"name": name, "channels": ["main"], "sale_multiplier": multiplier}));
    }
    let [zeta, alpha] = ["zeta", "alpha"].map(|name| {
        let id = admin.get(&format!("/admin/v1/groups/{name}"))["id"].as_str().unwrap().to_owned();
        format!("/groups/{id}\"")
    });
    let page = op.page(&admin.gateway, "/groups");
    assert!(place(&page, &zeta) < place(&page, &alpha) && page.contains("href=\"?sort=name\""), "{page}");
    let page = op.page(&admin.gateway, "/groups?sort=name");
    assert!(place(&page, &alpha) < place(&page, &zeta) && page.contains("aria-sort=\"ascending\""), "{page}");
    assert!(page.contains("/groups.csv?sort=name\""), "{page}");
    let page = op.page(&admin.gateway, "/groups?sort=multiplier");
    assert!(place(&page, &zeta) < place(&page, &alpha) && page.contains("aria-sort=\"descending\""), "{page}");
    let file = op.page(&admin.gateway, "/groups.csv?sort=name");
    assert!(place(&file, ",alpha,") < place(&file, ",zeta,"), "{file}");

    let serves = ["aa", "bb"].map(|model| json!({"model": model, "upstream": model}));
    admin.patch("/admin/v1/channels/main", &json!({"serves": serves}));
    for (model, input) in [("aa", "1"), ("bb", "2")] {
        ok(&admin.call("PUT", &format!("/admin/v1/prices/{model}"), Some(&json!({"price": {"input": input, "output": "3"}}))));
    }
    let (aa, bb) = ("/pricing/model?model=aa\"", "/pricing/model?model=bb\"");
    let page = op.page(&admin.gateway, "/pricing?state=priced");
    assert!(place(&page, aa) < place(&page, bb) && page.contains("href=\"?state=priced&#38;sort=input\""), "{page}");
    let page = op.page(&admin.gateway, "/pricing?state=priced&sort=input");
    assert!(place(&page, bb) < place(&page, aa) && page.contains("<option value=\"input\" selected>"), "{page}");
    let file = op.page(&admin.gateway, "/pricing.csv?sort=input");
    assert!(place(&file, "\nbb,") < place(&file, "\naa,"), "{file}");
    for sort in ["output", "margin", "unknown"] {
        place(&op.page(&admin.gateway, &format!("/pricing?sort={sort}")), aa);
    }
}
