"""BibTeX of papers that several methods come from."""

from __future__ import annotations

LILLICRAP_2016 = """@article{lillicrap2016random,
  title={Random synaptic feedback weights support error backpropagation for deep learning},
  author={Lillicrap, Timothy P. and Cownden, Daniel and Tweed, Douglas B. and Akerman, Colin J.},
  journal={Nature Communications}, volume={7}, pages={13276}, year={2016}
}"""
LIAO_2016 = """@inproceedings{liao2016important,
  title={How important is weight symmetry in backpropagation?},
  author={Liao, Qianli and Leibo, Joel Z. and Poggio, Tomaso},
  booktitle={Proceedings of the AAAI Conference on Artificial Intelligence}, volume={30}, year={2016}
}"""
AKROUT_2019 = """@inproceedings{akrout2019deep,
  title={Deep learning without weight transport},
  author={Akrout, Mohamed and Wilson, Collin and Humphreys, Peter C. and Lillicrap, Timothy and Tweed, Douglas B.},
  booktitle={Advances in Neural Information Processing Systems}, volume={32}, year={2019}
}"""
