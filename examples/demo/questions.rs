//! The same question, again and again.

use std::io::Write as _;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::Options;
use super::foretelling::{Parting, partings};
use super::llama::generate::generate;
use super::llama::model::Llama;
use super::llama::sampler::{Sampler, Sampling};
use super::llama::tokenizer::ChatTokenizer;

/// One model, asked in each state of its kernels.
pub struct Asking<'a> {
    questions: Questions<'a>,
    /// What every answer is held to, and which of its tokens each state was led along.
    reference: Option<Answer>,
    is_narrow: bool,
    answers: Vec<(&'static str, Answer, Vec<Parting>)>,
}

impl<'a> Asking<'a> {
    /// `wide` is the same model in f32, where the model is in a narrower type: its answer is what the others are held
    /// to. In f32, that is the model's first answer.
    pub fn new(
        options: &'a Options,
        model: &'a Llama,
        wide: Option<&'a Llama>,
        tokenizer: Option<&'a ChatTokenizer>,
    ) -> anyhow::Result<Self> {
        let reference = match wide {
            Some(wide) => Some(Questions::new(options, wide, tokenizer)?.ask("candle in f32")?),
            None => None,
        };
        let (questions, is_narrow) = (Questions::new(options, model, tokenizer)?, wide.is_some());
        Ok(Self { questions, reference, is_narrow, answers: Vec::new() })
    }

    /// Asks in the present state, `how`, and holds the answer to the reference: token by token in f32. In a narrower
    /// type one other choice leads to another text, so the model is led along the reference's answer, and every choice
    /// of its own has to be one that rounding may decide.
    pub fn ask(&mut self, how: &'static str) -> anyhow::Result<()> {
        let answer = self.questions.ask(how)?;
        let reference = self.reference.get_or_insert_with(|| answer.clone());
        let mut own = Vec::new();
        if self.is_narrow {
            own = partings(self.questions.model, &self.questions.prompt, &reference.tokens).context(how)?;
            for Parting { at, answer, own, ahead } in &own {
                println!(
                    "  led along the answer in f32: token {at} is {answer} there and {own} here, {ahead} last places ahead"
                );
            }
        } else {
            let (expected, actual) = (&reference.tokens, &answer.tokens);
            ensure!(actual == expected, "{how} gave other tokens than kernels off: {actual:?}, not {expected:?}");
        }
        self.answers.push((how, answer, own));
        Ok(())
    }

    pub fn conclude(&self) {
        let count = self.reference.as_ref().map_or(0, |reference| reference.tokens.len());
        if self.is_narrow {
            println!("led along the {count} tokens of candle in f32, {} times: the same choices", self.answers.len());
            println!("but where two tokens are within the last places of the type, as told above");
        } else {
            println!("the same {count} tokens all {} times", self.answers.len());
        }
    }

    /// Every answer, by the state that it was given in.
    pub fn as_json(&self) -> serde_json::Map<String, Value> {
        let mut results = serde_json::Map::new();
        if let Some(reference) = &self.reference {
            results.insert("answer".to_owned(), json!(reference.text));
            if self.is_narrow {
                results.insert("tokens_f32".to_owned(), json!(reference.tokens));
            }
        }
        for (how, answer, own) in &self.answers {
            let how = how.trim_start_matches("kernels ").trim_end_matches(" mode").replace(' ', "_");
            results.insert(format!("tokens_{how}"), json!(answer.tokens));
            if self.is_narrow {
                results.insert(format!("partings_{how}"), json!(own));
            }
        }
        results
    }
}

struct Questions<'a> {
    model: &'a Llama,
    tokenizer: Option<&'a ChatTokenizer>,
    question: &'a str,
    prompt: Vec<u32>,
    max_tokens: usize,
}

#[derive(Clone)]
struct Answer {
    /// `None` for the random model, which has no tokenizer.
    text: Option<String>,
    tokens: Vec<u32>,
}

impl<'a> Questions<'a> {
    fn new(options: &'a Options, model: &'a Llama, tokenizer: Option<&'a ChatTokenizer>) -> anyhow::Result<Self> {
        let prompt = match tokenizer {
            Some(tokenizer) => tokenizer.chat_prompt(&options.question, None)?,
            None => vec![1, 2, 3, 4],
        };
        Ok(Self { model, tokenizer, question: &options.question, prompt, max_tokens: options.max_tokens })
    }

    /// Asks greedily, and prints the answer as it comes.
    fn ask(&self, how: &str) -> anyhow::Result<Answer> {
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
