"""Read some handwritten digits with a model that `train.py` made.

    shunter model download handwriting
    python read.py handwriting/model.joblib
"""

from __future__ import annotations

import sys


def main() -> None:
    import joblib
    from sklearn.datasets import load_digits

    model = joblib.load(sys.argv[1])
    images, digits = load_digits(return_X_y=True)
    some = slice(100, 105)
    for row in range(8):
        rows = [image.reshape(8, 8)[row] for image in images[some]]
        print("   ".join("".join(" .:*#"[min(4, int(pixel) // 4)] * 2 for pixel in pixels) for pixels in rows))
    read = model.predict(images[some] / 16.0)
    print("read as " + ", ".join(map(str, read)) + "; they are " + ", ".join(map(str, digits[some])))


if __name__ == "__main__":
    main()
