//! Lines in Go, where an unused import does not compile.

use super::{Lines, TEXT, quoted};

impl Lines<'_> {
    /// The key, and the import that it needs.
    fn go_key(&self) -> (String, &'static str) {
        match self.access.key.strip_prefix('$') {
            Some(variable) => (format!("os.Getenv({})", quoted(variable)), "\t\"os\"\n"),
            None => (quoted(self.access.key), ""),
        }
    }

    pub(super) fn openai_go(&self) -> String {
        let ((key, import), base, model) = (self.go_key(), quoted(&self.base), quoted(self.access.model));
        format!(
            "package main\n\nimport (\n\t\"context\"\n\t\"fmt\"\n{import}\n\t\"github.com/openai/openai-go/v3\"\n\
             \t\"github.com/openai/openai-go/v3/option\"\n)\n\nfunc main() {{\n\
             \tclient := openai.NewClient(option.WithBaseURL({base}), option.WithAPIKey({key}))\n\
             \tanswer, err := client.Chat.Completions.New(context.Background(), openai.ChatCompletionNewParams{{\n\
             \t\tModel:    {model},\n\
             \t\tMessages: []openai.ChatCompletionMessageParamUnion{{openai.UserMessage(\"{TEXT}\")}},\n\t}})\n\
             \tif err != nil {{\n\t\tpanic(err)\n\t}}\n\tfmt.Println(answer.Choices[0].Message.Content)\n}}"
        )
    }

    pub(super) fn genai_go(&self) -> String {
        let ((key, import), base, model) = (self.go_key(), quoted(&self.base), quoted(self.access.model));
        format!(
            "package main\n\nimport (\n\t\"context\"\n\t\"fmt\"\n{import}\n\t\"google.golang.org/genai\"\n)\n\nfunc main() {{\n\
             \tctx := context.Background()\n\tclient, err := genai.NewClient(ctx, &genai.ClientConfig{{\n\
             \t\tAPIKey:      {key},\n\t\tBackend:     genai.BackendGeminiAPI,\n\
             \t\tHTTPOptions: genai.HTTPOptions{{BaseURL: {base}}},\n\t}})\n\tif err != nil {{\n\t\tpanic(err)\n\t}}\n\
             \tanswer, err := client.Models.GenerateContent(ctx, {model}, genai.Text(\"{TEXT}\"), nil)\n\
             \tif err != nil {{\n\t\tpanic(err)\n\t}}\n\tfmt.Println(answer.Text())\n}}"
        )
    }
}
