//! The perplexity of the example model.

use candle_core::{DType, Device, Tensor};

use crate::llama::config::Config;
use crate::llama::model::Llama;
use crate::llama::perplexity::{Foretold, foretell, surprise_of};

#[test]
fn a_case_that_a_hand_can_compute() {
    // Probabilities 1/4, 1/4, 1/2 and 1/8, 5/8, 1/4; a row of equals, which all have 1/3.
    let [ln2, ln5] = [2.0_f32.ln(), 5.0_f32.ln()];
    let logits = [[0.0, 0.0, ln2], [100.0, 100.0 + ln5, 100.0 + ln2], [-7.0, -7.0, -7.0]];
    let logits = Tensor::new(&logits, &Device::Cpu).unwrap();
    let surprise = surprise_of(&logits, &[2, 0, 1]).unwrap();
    assert!((surprise - 48.0_f64.ln()).abs() < 1e-5, "{surprise}");
    // The product of what was given is 1/48, over three tokens.
    let perplexity = Foretold { tokens: 3, surprise }.perplexity();
    assert!((perplexity - 48.0_f64.cbrt()).abs() < 1e-5, "{perplexity}");
    // What a token cannot be costs nothing to the others, and is endlessly surprising itself.
    let sure = Tensor::new(&[[0.0_f32, f32::NEG_INFINITY]], &Device::Cpu).unwrap();
    assert!(surprise_of(&sure, &[0]).unwrap().abs() < 1e-12);
    assert!(surprise_of(&sure, &[1]).unwrap().is_infinite());
    // Broken numbers stay broken, so that no comparison passes by them.
    let broken = Tensor::new(&[[0.0_f32, f32::NAN]], &Device::Cpu).unwrap();
    assert!(surprise_of(&broken, &[0]).unwrap().is_nan());

    let outside = surprise_of(&logits, &[2, 3, 1]).unwrap_err();
    assert_eq!(outside.to_string(), "token 3 is outside of the model's vocabulary of 3");
    assert_eq!(surprise_of(&logits, &[2]).unwrap_err().to_string(), "3 rows of logits for 1 tokens");
}

#[test]
fn a_text_is_foretold_the_same_whole_and_in_parts() {
    let model = Llama::random(Config::tiny(), 7, DType::F32, &Device::Cpu).unwrap();
    let text: Vec<u32> = (0..40).map(|at| at * 31 % 128).collect();
    let logits = model.forward_all(&Tensor::new(&text[..39], &Device::Cpu).unwrap().unsqueeze(0).unwrap(), None);
    let expected = surprise_of(&logits.unwrap().squeeze(0).unwrap(), &text[1..]).unwrap();
    for chunk in [1, 7, 39, 100] {
        let foretold = foretell(&model, &text, chunk).unwrap();
        assert_eq!(foretold.tokens, 39);
        assert!((foretold.surprise - expected).abs() < 1e-3, "{chunk}: {foretold:?} is not {expected}");
    }
    assert_eq!(foretell(&model, &[1], 8).unwrap_err().to_string(), "a perplexity needs two tokens or more, got 1");
    foretell(&model, &[1; 300], 8).unwrap_err();
}
