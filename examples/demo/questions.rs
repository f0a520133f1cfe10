//! The same question, again and again.

use std::io::Write as _;

use super::Options;
use super::llama::generate::generate;
use super::llama::model::Llama;
use super::llama::sampler::{Sampler, Sampling};
use super::llama::tokenizer::ChatTokenizer;

pub struct Questions<'a> {
    model: &'a Llama,
    tokenizer: Option<&'a ChatTokenizer>,
    question: &'a str,
    prompt: Vec<u32>,
    max_tokens: usize,
}

pub struct Answer {
    /// `None` for the random model, which has no tokenizer.
    pub text: Option<String>,
    pub tokens: Vec<u32>,
}

impl<'a> Questions<'a> {
    pub fn new(options: &'a Options, model: &'a Llama, tokenizer: Option<&'a ChatTokenizer>) -> anyhow::Result<Self> {
        let prompt = match tokenizer {
            Some(tokenizer) => tokenizer.chat_prompt(&options.question, None)?,
            None => vec![1, 2, 3, 4],
        };
        Ok(Self { model, tokenizer, question: &options.question, prompt, max_tokens: options.max_tokens })
    }

    /// Asks greedily, and prints the answer as it comes.
    pub fn ask(&self, how: &str) -> anyhow::Result<Answer> {
        let mut sampler = Sampler::new(Sampling::GREEDY)?;
        let Some(tokenizer) = self.tokenizer else {
            let result = generate(self.model, &self.prompt, self.max_tokens, &[], &mut sampler, |_| Ok(()))?;
            println!("{how}: {result}");
            return Ok(Answer { text: None, tokens: result.tokens });
        };
        println!("{how}: {}", self.question);
        print!("  ");
        let mut stream = tokenizer.stream();
        let on_token = |token| {
            print!("{}", stream.push(token)?);
            // A terminal that went away only misses the text.
            let _ = std::io::stdout().flush();
            Ok(())
        };
        let result = generate(self.model, &self.prompt, self.max_tokens, tokenizer.eos(), &mut sampler, on_token)?;
        println!("{}\n  ({result})", stream.finish()?);
        let text = tokenizer.decode(&result.tokens)?;
        Ok(Answer { text: Some(text), tokens: result.tokens })
    }
}
