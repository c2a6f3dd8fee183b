//! `scripted-provider [--listen ADDRESS] [--answers FILE]`: serves the scripted provider, and prints its address when it is ready. FILE
//! is a JSON object of texts and the answers to them.

fn main() -> std::io::Result<()> {
    let option = |name: &str| std::env::args().skip_while(move |argument| argument != name).nth(1);
    let listen = option("--listen");
    let address = listen.as_deref().unwrap_or("127.0.0.1:0").parse().map_err(std::io::Error::other)?;
    if let Some(file) = option("--answers") {
        let text = std::fs::read_to_string(file)?;
        tollgate_testkit::provider::set_answers(serde_json::from_str(&text)?);
    }
    #[expect(clippy::print_stdout, reason = "the program that starts it reads the address")]
    tollgate_testkit::provider::serve(address, |address| println!("{address}"))
}
